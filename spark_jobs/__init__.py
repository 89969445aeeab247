"""Spark jobs around NSQ, installed as `nsqfast.spark_jobs`: each is a script for spark-submit, too."""
