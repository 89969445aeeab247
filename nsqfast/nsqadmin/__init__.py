"""nsqadmin: see and steer a cluster in a browser, and NSQ's JSON API for scripts."""
