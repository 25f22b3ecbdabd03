"""How connection URLs are parsed."""

import ssl

import pytest

from coder_k8s.coderd.database_url import parse


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("postgres://u:p@db/coder", [("db", 5432)]),
        ("postgresql://u:p@db:6432/coder", [("db", 6432)]),
        ("postgres://u:p@a:1,b:2,c/coder", [("a", 1), ("b", 2), ("c", 5432)]),
        ("postgres://u:p@[::1]:7,[fd00::1]/coder", [("::1", 7), ("fd00::1", 5432)]),
        ("postgres:///coder?host=/run/pg", [("/run/pg", 5432)]),
        ("postgres://u@%2Frun%2Fpg:7/coder", [("/run/pg", 7)]),
        ("postgres:///coder?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("postgres:///coder?host=a,b&port=7", [("a", 7), ("b", 7)]),
        ("postgres:///coder", [("localhost", 5432)]),
        (" postgres://u:p@db/coder\n", [("db", 5432)]),
    ],
)
def test_servers(url: str, servers: list[tuple[str, int]]) -> None:
    assert parse(url).servers == servers


@pytest.mark.parametrize(
    ("url", "user", "password", "database"),
    [
        ("postgres://u:p@db/coder", "u", "p", "coder"),
        ("postgres://u%40x:p%2F%25@db/my%20db", "u@x", "p/%", "my db"),
        ("postgres://u:p@ss@db/coder", "u", "p@ss", "coder"),
        ("postgres://u:p:w@db/coder", "u", "p:w", "coder"),
        ("postgres://u@db/coder", "u", "", "coder"),
        ("postgres://db/?user=u&password=p&dbname=coder", "u", "p", "coder"),
    ],
)
def test_login(url: str, user: str, password: str, database: str) -> None:
    arguments = parse(url).arguments
    assert (arguments["user"], arguments["password"], arguments["database"]) == (user, password, database)


def test_client_parameters_are_not_sent_to_the_server() -> None:
    found = parse("postgres://db/coder?application_name=x&search_path=y&connect_timeout=3&binary_parameters=yes")
    assert found.arguments["server_settings"] == {"application_name": "x", "search_path": "y"}


@pytest.mark.parametrize(
    ("query", "dsn"),
    [
        ("", "postgres://?sslmode=require"),
        ("?sslmode=disable", "postgres://?sslmode=disable"),
        ("?sslmode=verify-full&sslrootcert=/ca.crt", "postgres://?sslmode=verify-full&sslrootcert=%2Fca.crt"),
    ],
)
def test_tls(query: str, dsn: str) -> None:
    assert parse(f"postgres://db/coder{query}").arguments["dsn"] == dsn


@pytest.mark.parametrize(("mode", "named"), [("verify-full", True), ("verify-ca", False)])
def test_verification_without_a_file_uses_the_cas_of_the_system(mode: str, named: bool) -> None:
    context = parse(f"postgres://db/coder?sslmode={mode}").arguments["ssl"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, named)


def test_repr_contains_no_secrets() -> None:
    assert "s3cr3t" not in repr(parse("postgres://u:s3cr3t@db/coder"))
