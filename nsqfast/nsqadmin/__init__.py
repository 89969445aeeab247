"""nsqadmin: view and manage a cluster in a browser, plus NSQ's JSON API for scripts."""
