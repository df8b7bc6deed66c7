from django.db import migrations
from django.db.models import Min


def say_what_pays(apps, schema_editor):
    """The first money that was taken for a paid order pays it. The rest is left to the sweep."""
    payment = apps.get_model("orders", "Payment")
    taken = payment.objects.filter(status=1, use="", order__status=1)
    first = taken.values("order").annotate(at=Min("ended_at")).values_list("order", "at")
    for order_id, at in first.iterator():
        row = taken.filter(order=order_id, ended_at=at).order_by("pk").first()
        payment.objects.filter(pk=row.pk).update(use="order")


class Migration(migrations.Migration):
    dependencies = [("orders", "0002_money")]

    operations = [migrations.RunPython(say_what_pays, migrations.RunPython.noop, elidable=True)]
