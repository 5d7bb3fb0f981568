# SPDX-License-Identifier: Apache-2.0

"""The URLs below /admin/interference/."""

from __future__ import annotations

from django.urls import path

from scavenger_openstack.dashboard.admin import actions
from scavenger_openstack.dashboard.admin import incidents
from scavenger_openstack.dashboard.admin import profiles
from scavenger_openstack.dashboard.admin import views

urlpatterns = [
    path('', views.Index.as_view(), name='index'),
    path('incidents/<str:pk>/', incidents.Show.as_view(), name='incident'),
    path('limits/set/', views.SetLimit.as_view(), name='cap_set'),
    path('limits/remove/', views.UnsetLimit.as_view(), name='cap_unset'),
    path('exempt/', actions.SetExemption.as_view(), name='exempt'),
    path('evict/', actions.CreateEviction.as_view(), name='evict'),
    path('profiles/delete/', actions.DeleteProfile.as_view(),
         name='profile_delete'),
    path('profiles/<str:pk>/', profiles.Show.as_view(), name='profile'),
    path('protection/', views.Protection.as_view(), name='protection'),
]
