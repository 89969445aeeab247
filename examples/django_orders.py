"""Django publishes orders once they are stored, until Ctrl-C.

python examples/django_orders.py    (the same as: python examples/django_orders.py runserver --noreload 8000)

Then `curl -d item=tea -d quantity=2 127.0.0.1:8000`. The environment may have NSQD=HOST:PORT (127.0.0.1:4150), TOPIC
(orders) and DATABASE=FILE (orders.sqlite3).
"""

import os
import sys

import django
import orjson
from django import forms
from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import connection, models, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from nsqfast.client.sync import Producer

DATABASE = os.environ.get("DATABASE", "orders.sqlite3")
TOPIC = os.environ.get("TOPIC", "orders")
# It connects at its first use, and anew in each process that gunicorn forks; all threads share it.
producer = Producer(os.environ.get("NSQD", "127.0.0.1:4150"), timeout_s=2.0)
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE}},
    DEBUG=True,  # this host alone is served, and errors are logged here
    ROOT_URLCONF=__name__,
)
django.setup()


class Order(models.Model):  # noqa: DJ008 - nobody prints one
    item: "models.CharField[str, str]" = models.CharField(max_length=100)
    quantity: "models.IntegerField[int, int]" = models.IntegerField()

    class Meta:
        app_label, db_table = "shop", "orders"


def create_order(request: HttpRequest) -> HttpResponse:
    form = forms.modelform_factory(Order, fields=["item", "quantity"])(request.POST)
    if not form.is_valid():
        return JsonResponse(form.errors, status=400)
    with transaction.atomic():
        order = form.save()
        body = orjson.dumps({"order": order.pk, **form.cleaned_data})
        # If nsqd is away, the order stands and Django logs the error; without `robust` the answer would be 500.
        transaction.on_commit(lambda: producer.publish(TOPIC, body), robust=True)
        if is_refused := order.quantity > 10:  # in place of a payment that fails, say
            transaction.set_rollback(True)  # what waits for the commit is dropped, too
    return HttpResponse(status=409 if is_refused else 201)


urlpatterns = [path("", create_order)]

if __name__ == "__main__":
    if "orders" not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Order)
    words = sys.argv[1:] or ["runserver", "--noreload", "8000"]
    execute_from_command_line([sys.argv[0], *words])
