import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Tenant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(max_length=63, unique=True)),
                ('name', models.CharField(max_length=120)),
                ('weight', models.PositiveSmallIntegerField(default=1, help_text='share in fair scheduling')),
                ('fail_mode', models.CharField(choices=[('open', 'Open'), ('closed', 'Closed')], default='open', max_length=6)),
                ('revision', models.PositiveIntegerField(default=1)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['slug'],
            },
        ),
        migrations.CreateModel(
            name='IdempotencyRecord',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ('owner', models.CharField(help_text='token or user that sent the key', max_length=80)),
                ('key', models.CharField(max_length=255)),
                ('request_sha256', models.CharField(max_length=64)),
                ('claim', models.UUIDField(default=uuid.uuid4)),
                ('claimed_at', models.DateTimeField()),
                ('status', models.PositiveSmallIntegerField(help_text='null while the first request is running', null=True)),
                ('answer', models.TextField(blank=True, help_text='body and headers, encrypted')),
                ('created_at', models.DateTimeField(db_index=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('owner', 'key'), name='one_record_per_owner_and_key')],
            },
        ),
        migrations.CreateModel(
            name='LoginAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('who', models.CharField(help_text='SHA-256 of the folded user name', max_length=64)),
                ('address', models.CharField(max_length=45)),
                ('at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['who', 'at'], name='login_by_who'), models.Index(fields=['address', 'at'], name='login_by_address')],
            },
        ),
        migrations.CreateModel(
            name='Quota',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('service', models.CharField(max_length=255)),
                ('requests_per_second', models.FloatField(null=True)),
                ('burst', models.PositiveIntegerField(help_text='requests; default one second of the rate, at least 1', null=True)),
                ('concurrency', models.PositiveIntegerField(null=True)),
                ('revision', models.PositiveIntegerField(default=1)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='quotas', to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'service'), name='one_quota_per_tenant_and_service'), models.CheckConstraint(condition=models.Q(('requests_per_second__isnull', True), ('requests_per_second__gt', 0), _connector='OR'), name='quota_rate_positive'), models.CheckConstraint(condition=models.Q(('burst__isnull', True), ('burst__gte', 1), _connector='OR'), name='quota_burst_at_least_1'), models.CheckConstraint(condition=models.Q(('concurrency__isnull', True), ('concurrency__gte', 1), _connector='OR'), name='quota_concurrency_at_least_1')],
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(choices=[('viewer', 'Viewer'), ('operator', 'Operator'), ('admin', 'Admin')], max_length=8)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'user'), name='one_role_per_tenant_and_user')],
            },
        ),
        migrations.CreateModel(
            name='Token',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=120)),
                ('hint', models.CharField(help_text='first characters of the secret, to tell tokens apart', max_length=16)),
                ('sha256', models.CharField(max_length=64, unique=True)),
                ('scopes', models.JSONField(default=list)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('last_used_at', models.DateTimeField(null=True)),
                ('expires_at', models.DateTimeField(null=True)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='tokens_made', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to='tenants.tenant')),
            ],
            options={
                'indexes': [models.Index(fields=['tenant', '-id'], name='token_by_tenant')],
            },
        ),
    ]
