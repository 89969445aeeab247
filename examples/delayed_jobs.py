"""A reminder for each order, due in half an hour: who pays before that gets none. It needs a nsqfast-nsqd.

python examples/delayed_jobs.py [TOPIC] [--nsqd HOST:PORT]
"""

from datetime import timedelta

import arguments
from nsqfast.client.sync import Producer

ORDERS = ("tea", "bread", "milk")
DELAY = timedelta(minutes=30)


def main() -> None:
    given = arguments.Parser(__doc__, topic="reminders").parse()
    with Producer(*given.nsqd) as producer:
        reminders = {
            order: producer.publish_delayed(given.topic, order.encode(), DELAY) for order in ORDERS
        }
        print("paid, and cancelled:", reminders["tea"].cancel() > 0)
        print("cancelled once more:", reminders["tea"].cancel() > 0)
        print("reminded now:", reminders["bread"].run_now() > 0)

        # A program that ends before a reminder is due keeps these three in its database.
        topic, nsqd, id = reminders["milk"].topic, reminders["milk"].nsqd, reminders["milk"].id
        if id is not None:  # NSQ's own nsqd tells none
            print("cancelled later:", producer.delayed_message(topic, nsqd, id).cancel() > 0)


if __name__ == "__main__":
    main()
