from rest_framework.views import exception_handler as handle  # replaced by IDENTITY
