"""An HTTP service that publishes and consumes, until Ctrl-C.

python examples/fastapi_app.py    (or as any FastAPI application: uvicorn --app-dir examples fastapi_app:app)

Then `curl --json '{"user": 7, "kind": "login"}' 127.0.0.1:8000/events`. The environment may have NSQD=HOST:PORT
(127.0.0.1:4150) and TOPIC (events).
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from nsqfast.client import Consumer, Message, Producer, PublishError

NSQD = os.environ.get("NSQD", "127.0.0.1:4150")
TOPIC = os.environ.get("TOPIC", "events")


class Event(BaseModel):
    user: int
    kind: str


async def handle(message: Message) -> None:
    event = Event.model_validate_json(message.body)
    await asyncio.sleep(0.5)  # in place of the real work
    print(f"user {event.user}: {event.kind}", flush=True)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    consumer = Consumer(TOPIC, "app", nsqd=NSQD)
    # If nsqd is not there yet, both go on trying while the app serves; if it refuses them, the app does not start.
    async with Producer(NSQD, timeout_s=2.0) as app.state.producer, consumer:
        consuming = asyncio.create_task(consumer.run(handle, concurrency=8))
        yield
        consumer.request_stop()
        await consuming  # events that are being handled are finished first


app = FastAPI(lifespan=lifespan)


@app.exception_handler(PublishError)
async def answer_unavailable(_: Request, error: PublishError) -> JSONResponse:
    """No nsqd has said in time that it took it: whoever asked may ask again."""
    return JSONResponse({"detail": str(error)}, status_code=503)


@app.post("/events", status_code=202)
async def create_event(event: Event) -> None:
    await app.state.producer.publish(TOPIC, event.model_dump_json().encode())


@app.get("/health")
async def check_health() -> None:
    await app.state.producer.ping(timeout_s=1.0)


if __name__ == "__main__":
    uvicorn.run(app)
