# SPDX-License-Identifier: Apache-2.0

"""The URLs below /project/disturbances/."""

from __future__ import annotations

from django.urls import path

from scavenger_openstack.dashboard.project import profiles
from scavenger_openstack.dashboard.project import views

urlpatterns = [
    path('', views.Index.as_view(), name='index'),
    path('profiles/', profiles.Index.as_view(), name='profiles'),
    path('profiles/<str:pk>/', profiles.Show.as_view(), name='profile'),
    path('<str:pk>/', views.Show.as_view(), name='incident'),
]
