"""The routes of the simulator, below /api/v2/."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from coder_k8s.dev.coderd_server import (
    daemons,
    handlers,
    health_report,
    jobs,
    organization_changes,
    organizations,
    proxies,
    template_changes,
    template_routes,
    version_routes,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Routes = dict[str, tuple[tuple[str, Handler], ...]]

TEMPLATES: Routes = {
    "workspaces": (("GET", template_routes.list_workspaces),),
    "templates": (("GET", template_routes.list_all),),
    "templates/{template}": (
        ("GET", template_routes.get_template),
        ("PATCH", template_changes.change),
        ("DELETE", template_changes.delete),
    ),
    "templates/{template}/versions": (
        ("GET", template_routes.list_versions),
        ("PATCH", template_changes.promote),
    ),
    "templates/{template}/versions/archive": (("POST", template_changes.archive),),
    "templates/{template}/versions/{version}": (("GET", template_routes.get_named_version),),
    "files": (("POST", version_routes.upload),),
    "files/{file}": (("GET", version_routes.get_file),),
    "templateversions/{version}": (("GET", template_routes.get_version),),
    "templateversions/{version}/cancel": (("PATCH", version_routes.cancel),),
    "templateversions/{version}/logs": (("GET", version_routes.logs),),
    "templateversions/{version}/archive": (("POST", version_routes.archive),),
    "templateversions/{version}/unarchive": (("POST", version_routes.archive),),
    "organizations/{organization}/templateversions": (("POST", version_routes.create),),
    "organizations/{organization}/templates": (
        ("GET", template_routes.list_in_organization),
        ("POST", template_changes.create),
    ),
    "organizations/{organization}/templates/{template}": (("GET", template_routes.get_by_name),),
    "organizations/{organization}/templates/{template}/versions/{version}": (
        ("GET", template_routes.get_named_version),
    ),
}

COMMON: Routes = {
    "buildinfo": (("GET", handlers.build_info),),
    "users/me": (("GET", handlers.me),),
    "users/{user}": (("GET", handlers.get_user),),
    "users/{user}/workspace/{name}": (("GET", handlers.get_workspace),),
    "users/me/keys/{id}": (("DELETE", handlers.delete_token),),
    "organizations": (("GET", organizations.list_organizations),),
    "organizations/{organization}": (("GET", organizations.get_organization),),
    "organizations/{organization}/provisionerdaemons": (("GET", daemons.list_daemons),),
    "organizations/{organization}/provisionerjobs": (("GET", jobs.list_jobs),),
    "organizations/{organization}/provisionerjobs/{job}": (("GET", jobs.get_job),),
    **TEMPLATES,
    "debug/health": (("GET", health_report.get_report),),
    "debug/health/settings": (("GET", health_report.get_settings),),
}
"""The routes of all builds."""

ENTERPRISE: Routes = {
    "entitlements": (("GET", handlers.entitlements),),
    "licenses": (("GET", handlers.list_licenses), ("POST", handlers.add_license)),
    "licenses/refresh-entitlements": (("POST", handlers.refresh_entitlements),),
    "licenses/{id}": (("DELETE", handlers.delete_license),),
    "organizations": (("GET", organizations.list_organizations), ("POST", organization_changes.create)),
    "organizations/{organization}": (
        ("GET", organizations.get_organization),
        ("PATCH", organization_changes.change),
        ("DELETE", organization_changes.delete),
    ),
    "organizations/{organization}/provisionerkeys": (
        ("GET", organizations.list_keys),
        ("POST", organizations.create_key),
    ),
    "organizations/{organization}/provisionerkeys/daemons": (("GET", organizations.key_daemons),),
    "organizations/{organization}/provisionerkeys/{name}": (("DELETE", organizations.delete_key),),
    "provisionerkeys/{key:.*}": (("GET", organizations.look_up_key),),
    "organizations/{organization}/groups": (("GET", template_changes.list_groups),),
    "templates/{template}/acl": (("GET", template_changes.get_acl), ("PATCH", template_changes.change_acl)),
    "workspaceproxies": (("GET", proxies.list_proxies), ("POST", proxies.create_proxy)),
    "workspaceproxies/{name}": (
        ("GET", proxies.get_proxy),
        ("PATCH", proxies.change_proxy),
        ("DELETE", proxies.delete_proxy),
    ),
    "workspaceproxies/me/register": (("POST", proxies.refuse_proxy_itself),),
}
"""The routes of enterprise builds, which replace those of all builds."""
