"""Spark jobs for NSQ, installed as `nsqfast.spark_jobs`: each is also a script for spark-submit."""
