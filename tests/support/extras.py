"""What each program has to be told, and which extra it needs."""

NOWHERE = "--nsqd-tcp-address=127.0.0.1:1"
# What each program has to be told so that nothing but its extra is missing.
FLAGS = {
    "nsqfast-nsqd": [],
    "nsqfast-nsqlookupd": [],
    "nsqfast-nsqadmin": ["--lookupd-http-address=127.0.0.1:1"],
    "nsqfast-nsq-to-file": ["--topic=t", NOWHERE],
    "nsqfast-redrive": ["--topic=t", "--channel=c", "--nsqd-http-address=127.0.0.1:1"],
    "nsqfast-replay": [NOWHERE, "archive.log"],
    "nsqfast-bench": ["pub", "--topic=t"],
    "nsqfast-nsq-to-http": ["--topic=t", NOWHERE, "--post=http://127.0.0.1:1/"],
    "nsqfast-commitlog": ["probe", "--seconds=0.01"],
    "nsqfast-completion": ["bash"],
    "nsqfast-nsq-tail": ["--topic=t", NOWHERE],
    "nsqfast-nsq-spool": ["--topic=t", "--channel=c", "--spool=spool", NOWHERE],
    "nsqfast-nsq-stat": ["--topic=t", "--channel=c", "--nsqd-http-address=127.0.0.1:1"],
    "nsqfast-nsq-to-nsq": ["--topic=t", NOWHERE, "--destination-nsqd-tcp-address=127.0.0.1:1"],
    "nsqfast-run": ["worker:app"],
    "nsqfast-to-nsq": ["--topic=t", NOWHERE],
    "nsqfast-spark": [
        "ingest",
        "--topic=t",
        "--channel=c",
        "--output=o",
        "--checkpoint=p",
        "--spool=s",
        NOWHERE,
    ],
}
# The extra of each that is no `server` program; empty = a plain install is enough.
EXTRAS = {
    "nsqfast-nsqadmin": "admin",
    "nsqfast-commitlog": "",
    "nsqfast-run": "",
    "nsqfast-spark": "spark",
}
