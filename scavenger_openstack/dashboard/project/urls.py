# SPDX-License-Identifier: Apache-2.0

"""The URLs below /project/disturbances/."""

from __future__ import annotations

from django.urls import path

from scavenger_openstack.dashboard.project import views

urlpatterns = [
    path('', views.Index.as_view(), name='index'),
    path('<str:pk>/', views.Show.as_view(), name='incident'),
]
