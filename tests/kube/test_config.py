import asyncio
import base64
import contextlib
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from coder_k8s.dev.certificates import Authority
from coder_k8s.kube import errors
from coder_k8s.kube.config import Config, ConfigError, in_cluster, load
from coder_k8s.kube.http import Http
from coder_k8s.kube.metrics import Metrics
from tests.kube import kubeconfigs
from tests.support.tls_servers import stop

SECRET = "s3cr3t-t0k3n"
IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca", datetime.now(UTC))


@pytest.fixture
def service_account(tmp_path: Path, authority: Authority) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("first\n")
    (folder / "namespace").write_text("coder-system")
    (folder / "ca.crt").write_bytes(authority.certificate.read_bytes())
    return folder


class TestPrecedence:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path: Path) -> None:
        for name in ("explicit", "listed", "home/.kube/config"):
            kubeconfigs.write(tmp_path / name, {"server": f"https://{name.partition('/')[0]}/"})

    @pytest.mark.parametrize(
        ("kubeconfig", "context", "listed", "pod", "server"),
        [
            pytest.param("explicit", None, "listed", True, "https://explicit", id="an explicit file"),
            pytest.param(None, None, "listed", True, "https://listed", id="KUBECONFIG"),
            pytest.param(None, None, "absent:listed", True, "https://listed", id="KUBECONFIG, one file absent"),
            pytest.param(None, None, "", True, "https://10.96.0.1:443", id="in a pod"),
            pytest.param(None, None, ":", True, "https://10.96.0.1:443", id="in a pod, KUBECONFIG lists nothing"),
            pytest.param(None, "one", "", True, "https://home", id="in a pod, with the name of a context"),
            pytest.param(None, None, "", False, "https://home", id="at home"),
        ],
    )
    def test_first_available(
        self,
        tmp_path: Path,
        service_account: Path,
        kubeconfig: str | None,
        context: str | None,
        listed: str,
        pod: bool,
        server: str,
    ) -> None:
        environ = {"KUBECONFIG": ":".join(str(tmp_path / part) if part else "" for part in listed.split(":"))}
        config = load(
            tmp_path / kubeconfig if kubeconfig else None,
            context,
            environ=environ | IN_CLUSTER if pod else environ,
            home=tmp_path / "home",
            service_account=service_account,
        )
        assert config.server == server

    def test_no_configuration(self, tmp_path: Path) -> None:
        nowhere = tmp_path / "nowhere"
        with pytest.raises(
            ConfigError, match="no cluster configured: KUBECONFIG is not set, there is no service account token"
        ):
            load(environ=IN_CLUSTER, home=nowhere, service_account=nowhere)
        with pytest.raises(ConfigError, match=r"KUBECONFIG: there is no file .*nowhere"):
            load(environ={"KUBECONFIG": str(nowhere)}, home=tmp_path / "home")
        with pytest.raises(ConfigError, match="nowhere: cannot be read"):
            load(nowhere)


class TestInCluster:
    @pytest.mark.parametrize(
        ("host", "server"), [("10.96.0.1", "https://10.96.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")]
    )
    async def test_server_and_credentials(self, service_account: Path, host: str, server: str) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"}
        config = in_cluster(environ, service_account)
        assert (config.server, config.namespace) == (server, "coder-system")
        credentials = await config.credentials()
        assert credentials.authorization == "Bearer first"
        assert credentials.ssl is not None
        assert [ca["serialNumber"] for ca in credentials.ssl.get_ca_certs()] == [serial(service_account / "ca.crt")]
        assert credentials.ssl.verify_mode == ssl.CERT_REQUIRED

    async def test_token_is_read_again_after_a_minute_and_after_rejection(
        self, service_account: Path, clock: Clock
    ) -> None:
        config = in_cluster(IN_CLUSTER, service_account, clock)
        first = await config.credentials()
        (service_account / "token").write_text("second")
        clock.now += 59
        assert await config.credentials() is first
        clock.now += 1
        second = await config.credentials()
        assert second.authorization == "Bearer second"
        assert second.ssl is first.ssl, "connections are pooled by context"

        (service_account / "token").write_text("third")
        assert (await config.credentials()).authorization == "Bearer second"
        assert (await config.credentials(renew=True)).authorization == "Bearer third"

    async def test_a_new_certificate_authority_is_used_after_a_minute(
        self, service_account: Path, clock: Clock, tmp_path: Path
    ) -> None:
        config = in_cluster(IN_CLUSTER, service_account, clock)
        await config.credentials()
        other = Authority(tmp_path, "other-ca", datetime.now(UTC))
        (service_account / "ca.crt").write_bytes(other.certificate.read_bytes())
        clock.now += 60
        context = (await config.credentials()).ssl
        assert context is not None
        assert [ca["serialNumber"] for ca in context.get_ca_certs()] == [serial(other.certificate)]

    @pytest.mark.parametrize("token", ["", "two words", "tökén"])
    async def test_an_invalid_token(self, service_account: Path, token: str) -> None:
        (service_account / "token").write_text(token)
        with pytest.raises(ConfigError, match=r"serviceaccount/token: does not contain a token$"):
            await in_cluster(IN_CLUSTER, service_account).credentials()

    async def test_a_token_file_that_reappears(self, service_account: Path) -> None:
        config = in_cluster(IN_CLUSTER, service_account)
        (service_account / "token").unlink()
        with pytest.raises(ConfigError, match="serviceaccount/token: No such file"):
            await config.credentials()
        (service_account / "token").write_text("back")
        assert (await config.credentials()).authorization == "Bearer back"

    def test_yaml_is_not_imported(self, service_account: Path) -> None:
        code = (
            "import sys; from pathlib import Path; from coder_k8s.kube.config import load;"
            f"load(environ={IN_CLUSTER}, service_account=Path({str(service_account)!r}));"
            "sys.exit('yaml' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def serial(certificate: Path) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate.read_bytes())
        file.flush()
        context = ssl.create_default_context(cafile=file.name)
    return str(context.get_ca_certs()[0]["serialNumber"])


class TestUser:
    @pytest.mark.parametrize(
        ("user", "authorization"),
        [
            ({}, None),
            ({"token": "t"}, "Bearer t"),
            ({"tokenFile": "token"}, "Bearer from-file"),
            ({"tokenFile": "token", "token": "t"}, "Bearer from-file"),
            ({"username": "ann", "password": "a:b"}, "Basic " + base64.b64encode(b"ann:a:b").decode()),
            ({"token": "t", "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no"}}, "Bearer t"),
        ],
    )
    async def test_authorization(self, tmp_path: Path, user: dict[str, Any], authorization: str | None) -> None:
        (tmp_path / "token").write_text("from-file\n")
        config = load(kubeconfigs.write(tmp_path / "config", user=user))
        assert (await config.credentials()).authorization == authorization

    async def test_token_file_is_read_again(self, tmp_path: Path, clock: Clock) -> None:
        (tmp_path / "token").write_text("first")
        config = load(kubeconfigs.write(tmp_path / "config", user={"tokenFile": "token"}), clock=clock)
        await config.credentials()
        (tmp_path / "token").write_text("second")
        assert (await config.credentials()).authorization == "Bearer first"
        clock.now += 60
        assert (await config.credentials()).authorization == "Bearer second"

    @pytest.mark.parametrize(
        ("cluster", "user", "message"),
        [
            ({}, {"auth-provider": {"name": "gcp"}}, "user 'one': auth-provider was removed .* exec plugin"),
            ({}, {"as": "root", "token": SECRET}, "user 'one': impersonation"),
            ({}, {"client-certificate": "c"}, "user 'one': a client certificate needs .* client-key"),
            ({"server": "one.example:6443"}, {}, "cluster 'one': its server must be an http"),
            ({"server": ""}, {}, "cluster 'one': its server must be an http"),
            (
                {"proxy-url": f"socks5://u:{SECRET}@p:1080"},
                {},
                "cluster 'one': its proxy-url .* socks5 is not supported",
            ),
        ],
    )
    def test_rejected_on_load(
        self, tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
    ) -> None:
        path = kubeconfigs.write(tmp_path / "config", cluster, user)
        with pytest.raises(ConfigError, match=message) as raised:
            load(path)
        assert str(raised.value).startswith(f"{path}: ")
        assert SECRET not in str(raised.value)

    @pytest.mark.parametrize(
        ("cluster", "user", "message"),
        [
            ({"certificate-authority": "absent"}, {}, "cluster 'one': cannot read .*absent: No such file"),
            ({"certificate-authority-data": b"x"}, {}, "cluster 'one': its certificate authority is not a PEM"),
            ({}, {"client-certificate": "absent", "client-key-data": b"x"}, "user 'one': cannot read .*absent"),
            ({}, {"client-certificate-data": b"x", "client-key-data": b"x"}, "user 'one': .* not a PEM pair"),
            ({}, {"tokenFile": "absent"}, "user 'one': cannot read .*absent"),
        ],
    )
    async def test_rejected_on_first_use(
        self, tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
    ) -> None:
        for part in (cluster, user):
            for name, value in part.items():
                part[name] = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        config = load(kubeconfigs.write(tmp_path / "config", cluster, user))
        with pytest.raises(ConfigError, match=message):
            await config.credentials()

    def test_the_proxy_url_contains_no_password(self, tmp_path: Path) -> None:
        cluster = {"proxy-url": "http://me:p%40ss:word@[::1]:8080/"}
        config = load(kubeconfigs.write(tmp_path / "config", cluster))
        assert config.proxy == "http://[::1]:8080/"
        expected = "Basic " + base64.b64encode(b"me:p@ss:word").decode()
        assert config.proxy_headers == {"Proxy-Authorization": expected}

    def test_repr_contains_no_secrets(self, tmp_path: Path) -> None:
        path = kubeconfigs.write(tmp_path / "config", {"proxy-url": f"http://u:{SECRET}@p"}, {"token": SECRET})
        assert SECRET not in repr(load(path))


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve on a free port; yield the URL."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    [(host, port)] = runner.addresses
    try:
        yield f"{'https' if context else 'http'}://{host}:{port}"
    finally:
        await stop(runner)


async def get_root(config: Config) -> bytes:
    async with Http(config, "test", Metrics()) as http:
        return await http.send("GET", "/", {}, {})


class TestTls:
    @pytest.fixture
    async def server(self, authority: Authority) -> AsyncIterator[str]:
        """A server that requires a client certificate and returns its common name."""
        pair = authority.serving("server", ["127.0.0.1", "api.example"])
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate)
        context.load_cert_chain(pair.certificate, pair.key)
        context.verify_mode = ssl.CERT_REQUIRED

        async def name(request: web.BaseRequest) -> web.Response:
            assert request.transport is not None
            certificate = request.transport.get_extra_info("peercert")
            return web.Response(text=dict(part[0] for part in certificate["subject"])["commonName"])

        async with serving(name, context) as url:
            yield url

    @pytest.fixture
    def robot(self, authority: Authority) -> dict[str, str]:
        authority.client("robot", "robot")
        return {"client-certificate": "robot.crt", "client-key": "robot.key"}

    async def test_certificates_in_files(self, tmp_path: Path, server: str, robot: dict[str, str]) -> None:
        cluster = {"server": server, "certificate-authority": "ca.crt"}
        assert await get_root(load(kubeconfigs.write(tmp_path / "config", cluster, robot))) == b"robot"

    async def test_certificates_as_data_leave_no_file(
        self, tmp_path: Path, server: str, robot: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

        def data(name: str) -> str:
            return base64.b64encode((tmp_path / name).read_bytes()).decode()

        cluster = {"server": server, "certificate-authority-data": data("ca.crt")}
        user = {"client-certificate-data": data("robot.crt"), "client-key-data": data("robot.key")}
        assert await get_root(load(kubeconfigs.write(tmp_path / "config", cluster, user))) == b"robot"
        assert list((tmp_path / "temporary").iterdir()) == []

    async def test_a_rotated_certificate(
        self, tmp_path: Path, server: str, robot: dict[str, str], authority: Authority, clock: Clock
    ) -> None:
        cluster = {"server": server, "certificate-authority": "ca.crt"}
        config = load(kubeconfigs.write(tmp_path / "config", cluster, robot), clock=clock)
        assert await get_root(config) == b"robot"
        authority.client("robot", "robot-2")
        clock.now += 60
        assert await get_root(config) == b"robot-2"

    async def test_no_client_certificate(self, tmp_path: Path, server: str) -> None:
        cluster = {"server": server, "certificate-authority": "ca.crt"}
        with pytest.raises(errors.Unreachable):
            await get_root(load(kubeconfigs.write(tmp_path / "config", cluster)))

    async def test_an_untrusted_server(self, tmp_path: Path, server: str, robot: dict[str, str]) -> None:
        Authority(tmp_path, "other", datetime.now(UTC))
        cluster = {"server": server, "certificate-authority": "other.crt"}
        with pytest.raises(errors.Unreachable, match="its certificate is not valid: self-signed certificate"):
            await get_root(load(kubeconfigs.write(tmp_path / "config", cluster, robot)))
        careless = {"server": server, "insecure-skip-tls-verify": True}
        assert await get_root(load(kubeconfigs.write(tmp_path / "config", careless, robot))) == b"robot"

    async def test_a_server_with_another_name(self, tmp_path: Path, server: str, robot: dict[str, str]) -> None:
        cluster = {"server": server.replace("127.0.0.1", "localhost"), "certificate-authority": "ca.crt"}
        with pytest.raises(errors.Unreachable, match="localhost"):
            await get_root(load(kubeconfigs.write(tmp_path / "config", cluster, robot)))
        cluster["tls-server-name"] = "api.example"
        assert await get_root(load(kubeconfigs.write(tmp_path / "config", cluster, robot))) == b"robot"

    @pytest.mark.parametrize("name", [None, "api.example"])
    async def test_through_a_proxy(self, tmp_path: Path, server: str, robot: dict[str, str], name: str | None) -> None:
        async with proxy() as (url, requests):
            cluster = {"server": server, "certificate-authority": "ca.crt", "proxy-url": url, "tls-server-name": name}
            assert await get_root(load(kubeconfigs.write(tmp_path / "config", cluster, robot))) == b"robot"
        [request] = requests
        assert request.startswith(f"CONNECT {server.removeprefix('https://')} ")

    async def test_through_a_proxy_with_a_password(self, tmp_path: Path, server: str, robot: dict[str, str]) -> None:
        async with proxy() as (url, requests):
            cluster = {"server": server, "certificate-authority": "ca.crt", "proxy-url": url}
            assert await get_root(load(kubeconfigs.write(tmp_path / "config", cluster, robot))) == b"robot"
        authorization = base64.b64encode(f"me:{SECRET}".encode()).decode()
        assert f"Proxy-Authorization: Basic {authorization}\r\n" in requests[0]

    async def test_a_proxy_that_rejects(self, tmp_path: Path, server: str, robot: dict[str, str]) -> None:
        async with proxy("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as (url, _):
            cluster = {"server": server, "certificate-authority": "ca.crt", "proxy-url": url}
            with pytest.raises(errors.Unreachable, match="407") as raised:
                await get_root(load(kubeconfigs.write(tmp_path / "config", cluster, robot)))
        assert SECRET not in str(raised.value)


@asynccontextmanager
async def proxy(response: str = "HTTP/1.1 200 Connection established\r\n\r\n") -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy for CONNECT only; yields its URL and the headers of its requests."""
    requests: list[str] = []

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await source.read(65536):
                sink.write(chunk)
                await sink.drain()
        sink.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        requests.append(head)
        writer.write(response.encode())
        if " 200 " not in response:
            writer.close()
            return
        host, port = head.split()[1].rsplit(":", 1)
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        finally:
            far_writer.close()
            writer.close()

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://me:{SECRET}@{host}:{port}", requests


class TestRefusal:
    """A server that accepts one token, and a file with the token."""

    @pytest.fixture
    def seen(self) -> list[str | None]:
        return []

    @pytest.fixture
    async def config(self, tmp_path: Path, seen: list[str | None], clock: Clock) -> AsyncIterator[Config]:
        async def check(request: web.BaseRequest) -> web.Response:
            seen.append(request.headers.get("Authorization"))
            if seen[-1] == "Bearer good":
                return web.Response(text="welcome")
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)

        async with serving(check) as url:
            (tmp_path / "token").write_text("good")
            path = kubeconfigs.write(tmp_path / "config", {"server": url}, {"tokenFile": "token"})
            yield load(path, clock=clock)

    async def test_a_renewed_token_is_tried_once(self, tmp_path: Path, config: Config, seen: list[str | None]) -> None:
        (tmp_path / "token").write_text("old")
        await config.credentials()
        (tmp_path / "token").write_text("good")
        assert await get_root(config) == b"welcome"
        assert await get_root(config) == b"welcome"
        assert seen == ["Bearer old", "Bearer good", "Bearer good"]

    async def test_a_second_refusal_is_final(self, tmp_path: Path, config: Config, seen: list[str | None]) -> None:
        (tmp_path / "token").write_text("bad")
        with pytest.raises(errors.Unauthorized) as raised:
            await get_root(config)
        assert seen == ["Bearer bad", "Bearer bad"]
        assert "bad" not in str(raised.value)
