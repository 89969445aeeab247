# pyright: strict
"""A web API that takes orders: `python orders_api.py HOST:PORT ... --port 8080`, until SIGTERM or Ctrl-C."""

import argparse
import asyncio
import json
import logging
import signal
import sys

from aiohttp import web

from nsqfast.client import NsqfastError, Producer, PublishError

logger = logging.getLogger("orders_api")

TOPIC = "orders"
PUBLISH_TIMEOUT_S = 2.0
PRODUCER = web.AppKey("producer", Producer)


async def post_order(request: web.Request) -> web.Response:
    """202 promises that NSQ has the order. 503 promises nothing: it may have it, the caller tries again."""
    try:
        order: object = await request.json()
    except ValueError:
        return web.json_response({"error": "the body is not JSON"}, status=400)
    logger.info("order: %s", order)
    try:
        await request.app[PRODUCER].publish(TOPIC, json.dumps(order).encode())
    except PublishError as error:
        return web.json_response({"error": str(error)}, status=503)
    return web.json_response({"queued": True}, status=202)


async def get_health(request: web.Request) -> web.Response:
    """What a load balancer asks."""
    try:
        await request.app[PRODUCER].ping(timeout_s=1.0)
    except NsqfastError as error:
        return web.json_response({"nsq": str(error)}, status=503)
    return web.json_response({"nsq": "connected"})


async def serve(addresses: list[str], port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with Producer(addresses, timeout_s=PUBLISH_TIMEOUT_S) as producer:
        app = web.Application()
        app[PRODUCER] = producer
        app.router.add_post("/orders", post_order)
        app.router.add_get("/health", get_health)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            print(f"listening on port {runner.addresses[0][1]}", flush=True)
            await stopped.wait()
            print("stopping", flush=True)
        finally:
            # Requests that have begun still need the producer, so they end first.
            await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("addresses", nargs="+", metavar="ADDR")
    parser.add_argument("--port", type=int, default=8080, help="0 = any that is free")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(serve(arguments.addresses, arguments.port))
    except NsqfastError as error:
        sys.exit(f"orders_api: {error}")


if __name__ == "__main__":
    main()
