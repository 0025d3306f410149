from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Entry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(auto_now_add=True, db_index=True)),
                ('actor', models.CharField(help_text='user:ada, token:ci, rollout:42, system', max_length=170)),
                ('verb', models.CharField(help_text='service.register, rollout.abort, ...', max_length=63)),
                ('target', models.CharField(help_text='rollout:42, service:file-type, ...', max_length=255)),
                ('tenant', models.CharField(blank=True, db_index=True, help_text='slug; empty for the whole house', max_length=63)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('before', models.JSONField(null=True)),
                ('after', models.JSONField(null=True)),
                ('topics', models.JSONField(default=list)),
                ('announced_at', models.DateTimeField(null=True)),
            ],
            options={
                'verbose_name_plural': 'entries',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['target', '-id'], name='audit_by_target'), models.Index(condition=models.Q(('announced_at__isnull', True)), fields=['id'], name='audit_not_announced')],
            },
        ),
    ]
