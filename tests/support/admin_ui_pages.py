"""The pages and dialogs that are looked at: by axe, at every width, and in screenshots. A new one gets a line here."""

# name: path below --base-path, for the cluster of support.admin_cluster.example_cluster
PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topics-search": "/topics?q=is%3Agrowing+depth%3Ex",
    "topic": "/topics/orders",
    "topic-inactive": "/topics/old",
    "channel": "/topics/orders/billing",
    "channel-clients": "/topics/orders/archive?tab=clients&range=15m",
    "channel-long-names": "/topics/" + "n" * 64 + "/" + "c" * 64,
    "messages": "/topics/orders/billing/messages",
    "messages-search": "/topics/orders/billing/messages?filter=order&view=text",
    "messages-hex": "/topics/orders/billing/messages?view=hex",
    "messages-in-flight": "/topics/orders/billing/messages?state=in_flight",
    "messages-of-topic": "/messages?topic=orders",
    "deferred": "/topics/orders/billing/deferred",
    "dead": "/topics/orders/billing/dead",
    "nodes": "/nodes",
    "node": "/nodes/10.0.0.1:4151",
    "node-down": "/nodes/10.0.0.3:4151",
    "lookup": "/lookup",
    "counter": "/counter",
    "problems": "/problems",
    "audit": "/audit",
    "policies": "/policies?edit=orders",
    "not-found": "/topics/order",
}

MORE = ".actions details:has([data-action=empty]) summary"
NODE = "[data-table=nodes] tbody tr summary"
# name: (path, selectors that are clicked one after the other, selector of the dialog)
DIALOGS = {
    "drop-messages": (
        "/topics/orders/billing/deferred",
        "[data-pick-all] then .bulk .risky",
        "#action[open]",
    ),
    "keys": ("/topics", "[data-opens=keys-dialog]", "#keys-dialog"),
    "menu": (
        "/topics",
        "tbody tr:last-child .act summary",
        "tbody .act details[open] .items",
    ),
    "create": ("/topics", "[data-action=create]", "#action[open]"),
    "publish": ("/topics/orders", "[data-action=publish]", "dialog[open]"),
    "empty": ("/topics/orders/billing", f"{MORE} then [data-action=empty]", "#action[open]"),
    "delete": ("/topics/orders", f"{MORE} then [data-action=delete]", "#action[open]"),
    "tombstone": (
        "/topics/orders",
        f"{NODE} then [data-table=nodes] .items button:last-child",
        "#action[open]",
    ),
    "result": (
        "/topics/x%23ephemeral",
        ".actions [data-action=pause]",
        "#action .results",
    ),
    "silence": ("/nodes/10.0.0.1:4151", "[data-opens=silence-dialog]", "#silence-dialog[open]"),
    "drain": ("/nodes/10.0.0.1:4151", "[data-opens=drain-dialog]", "#drain-dialog[open]"),
    "paused": ("/topics", "#pause", ".live[data-live=paused]"),
    "toast": (
        "/topics/orders/billing/deferred",
        "input[name=pick] then .bulk .step then #action [type=submit]",
        ".toast",
    ),
    "picked": ("/topics", "[data-pick-all]", ".bulk"),
    "bulk": ("/topics", "[data-pick-all] then .bulk [aria-label^=Delete]", "#action[open]"),
}
