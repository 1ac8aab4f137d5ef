"""Which trades were corrected, by index: the scanner asks with each chunk."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0011_core_digests"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="coretrade",
            index=models.Index(fields=["tenant", "version"], name="core_trade_version"),
        ),
    ]
