from rest_framework.pagination import CursorPagination


class NewestFirst(CursorPagination):
    ordering = "-id"
