"""The pages and dialogs that are looked at: by axe, at every width, and in screenshots. A new one gets a line here."""

# name: path below --base-path, for the cluster of support.admin_cluster.example_cluster
PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topics-search": "/topics?q=is%3Agrowing+depth%3Ex",
    "topic": "/topics/orders",
    "topic-inactive": "/topics/old",
    "channel": "/topics/orders/billing",
    "channel-long-names": "/topics/" + "n" * 64 + "/" + "c" * 64,
    "nodes": "/nodes",
    "node": "/nodes/10.0.0.1:4151",
    "node-down": "/nodes/10.0.0.3:4151",
    "lookup": "/lookup",
    "counter": "/counter",
    "problems": "/problems",
    "audit": "/audit",
    "not-found": "/topics/order",
}

# name: (path, selector that is clicked, selector of the dialog)
DIALOGS = {
    "keys": ("/topics", "[data-opens=keys-dialog]", "#keys-dialog"),
}
