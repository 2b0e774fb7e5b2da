#!/usr/bin/env python3
"""`kernwright cache push` and `pull`: against registries that misbehave, and against Debian's docker-registry and skopeo.

    oci_test.py KERNWRIGHT

The bundle holds a prediction, so NVRTC is needed. Without docker-registry or skopeo their tests skip, with the reason.
"""

import base64
import ctypes.util
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.kernwright.bundle.v1.tar+zstd"
USER, PASSWORD = "tuner", "pass:word"  # a password may have a colon
# What `htpasswd -nbB` makes of the two.
HTPASSWD = "tuner:$2b$05$abcdefghijklmnopqrstuuDIEddBSuRWBBEY6g5zv60IAP5bSSfki\n"

tool = sys.argv.pop(1) if len(sys.argv) > 1 else "kernwright"
folder = pathlib.Path(tempfile.mkdtemp(prefix="kernwright-oci-"))


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


# A helper as Docker's protocol wants it: it reads an address and prints a login, or why there is none.
HELPER = f"""#!/bin/sh
read -r server
test "$1" = get || exit 9
case "$server" in
  127.0.0.1:*) printf '{{"ServerURL":"%s","Username":"%s","Secret":"%s"}}' "$server" "$HELPED_USER" '{PASSWORD}' ;;
  *) echo 'credentials not found in native keychain'; exit 1 ;;
esac
"""


def run(*words, code=0, **variables):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "KERNWRIGHT_CACHE": str(folder / "cache")}
    if "KERNWRIGHT_CUDA_PATH" in os.environ:
        environment["KERNWRIGHT_CUDA_PATH"] = os.environ["KERNWRIGHT_CUDA_PATH"]
    environment.update(variables)
    ran = subprocess.run([tool, *map(str, words)], env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != code:
        raise AssertionError(f"{words}: status {ran.returncode}, expected {code}: {ran.stdout}{ran.stderr}")
    return ran.stdout + ran.stderr


def login(name, host, user=USER, password=PASSWORD):
    """A folder with a config.json as docker login leaves it."""
    home = folder / name
    home.mkdir(exist_ok=True)
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    (home / "config.json").write_text(json.dumps({"auths": {host: {"auth": pair}}}))
    return str(home)


def helpers(name, **programs):
    """A PATH with credential helpers in front."""
    bin = folder / name
    bin.mkdir(exist_ok=True)
    for program, text in programs.items():
        file = bin / f"docker-credential-{program}"
        file.write_text(text)
        file.chmod(0o755)
    return f"{bin}:{os.environ['PATH']}"


def config(name, **members):
    """A folder with a config.json."""
    home = folder / name
    home.mkdir(exist_ok=True)
    (home / "config.json").write_text(json.dumps(members))
    return str(home)


class Handler(http.server.BaseHTTPRequestHandler):
    """A registry of one artifact, `server.blob`, that lies as `server.lie` says."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", length=None, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        if length is not None and length != len(body):
            self.close_connection = True

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        good = self.path == "/token" and form["grant_type"] == ["refresh_token"] and form["refresh_token"] == [PASSWORD]
        self.answer(200, b'{"access_token": "secret"}') if good else self.answer(401, b"{}")

    def do_GET(self):
        server, shown = self.server, self.headers.get("Authorization", "")
        server.seen.append((self.path, shown))
        if self.path.startswith("/token"):
            expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            return self.answer(200, b'{"token": "secret"}') if shown == expected else self.answer(401, b"{}")
        if server.lie in ("bearer", "redirect") and "elsewhere" not in self.path and shown != "Bearer secret":
            realm = f"http://{server.host}/token"
            return self.answer(401, b"{}", WWW_Authenticate=f'Bearer realm="{realm}",service="r",scope="repository:team/h200:pull"')
        blob, told = server.blob, server.blob
        if server.lie == "another":
            blob = blob[:-1] + bytes([blob[-1] ^ 1])
        if "/manifests/" in self.path:
            manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "layers": [
                {"mediaType": "text/plain" if server.lie == "type" else LAYER, "digest": sha256(told),
                 "size": len(told) - (1 if server.lie == "size" else 0)}]}
            return self.answer(200, b"no JSON" if server.lie == "json" else json.dumps(manifest).encode())
        if server.lie == "redirect" and "elsewhere" not in self.path:
            return self.answer(307, Location=f"http://localhost:{server.server_port}/elsewhere/{self.path}")
        if server.lie == "truncated":
            return self.answer(200, blob[:100], length=len(blob))
        return self.answer(200, blob)


class Lying(http.server.ThreadingHTTPServer):
    def __init__(self, lie, blob):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lie, self.blob, self.seen = lie, blob, []
        self.host = f"127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bundle = folder / "bundle.tar.zst"
        if cls.bundle.exists():
            return
        run("tune", "vector_add", "n=4096", "dtype=bf16", "--sku", "h200")
        run("cache", "keygen", folder / "fleet")
        run("cache", "export", cls.bundle, "--key", folder / "fleet.key", "--serial", 7)


class PullTest(Case):
    def serve(self, lie):
        server = Lying(lie, self.bundle.read_bytes())
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def pull(self, lie, code=1, version=":1", **variables):
        server = self.serve(lie)
        out = folder / f"pulled-{lie}"
        said = run("cache", "pull", f"oci://{server.host}/team/h200{version}", out, code=code, **variables)
        self.assertEqual(out.exists(), code == 0, "only what is whole is written")
        return said

    def test_what_is_as_promised_is_written(self):
        said = self.pull("nothing", code=0)
        self.assertIn("oci://127.0.0.1:", said)
        self.assertEqual((folder / "pulled-nothing").read_bytes(), self.bundle.read_bytes())

    def test_another_blob_than_the_digest_says(self):
        self.assertIn("its manifest says " + sha256(self.bundle.read_bytes()), self.pull("another"))

    def test_a_truncated_blob(self):
        self.assertIn("/blobs/sha256:", self.pull("truncated"))

    def test_a_longer_blob_than_the_manifest_says(self):
        self.assertIn("the answer has more than", self.pull("size"))

    def test_what_is_no_bundle(self):
        self.assertIn("is no bundle", self.pull("type"))
        self.assertIn("is no bundle", self.pull("json"))

    def test_another_manifest_than_was_asked_for(self):
        said = self.pull("nothing-by-digest", version="@sha256:" + 64 * "0")
        self.assertIn("the manifest that came is sha256:", said)

    def test_a_token_is_asked_for_with_the_login(self):
        server = self.serve("bearer")
        reference, out = f"oci://{server.host}/team/h200:1", folder / "by-token"
        self.assertIn("docker login " + server.host, run("cache", "pull", reference, out, code=1))
        run("cache", "pull", reference, out, DOCKER_CONFIG=login("bearer", server.host))
        self.assertEqual(out.read_bytes(), self.bundle.read_bytes())
        asked = [path for path, _ in server.seen if path.startswith("/token")]
        self.assertIn("scope=repository%3Ateam%2Fh200%3Apull", asked[-1])

    def test_a_login_stays_with_the_registry(self):
        server = self.serve("redirect")
        run("cache", "pull", f"oci://{server.host}/team/h200:1", folder / "redirected",
            DOCKER_CONFIG=login("redirect", server.host))
        self.assertEqual((folder / "redirected").read_bytes(), self.bundle.read_bytes())
        shown = [authorization for path, authorization in server.seen if "elsewhere" in path]
        self.assertEqual(shown, [""], "another host sees no token")

    def test_logins_that_cannot_be_used(self):
        server = self.serve("bearer")
        reference, home = f"oci://{server.host}/team/h200:1", folder / "odd"
        home.mkdir()
        for text, expected in (("no JSON", "is no JSON object"),
                               (json.dumps({"auths": {server.host: {"auth": "bm8gY29sb24="}}}), "is not user:password")):
            (home / "config.json").write_text(text)
            self.assertIn(expected, run("cache", "pull", reference, folder / "never", code=1, DOCKER_CONFIG=str(home)))
        self.assertFalse((folder / "never").exists())

    def test_a_helper_is_asked_for_the_login(self):
        server = self.serve("bearer")
        reference, out = f"oci://{server.host}/team/h200:1", folder / "helped"
        path = helpers("good", fake=HELPER)
        for members in ({"credHelpers": {server.host: "fake"}}, {"credsStore": "fake"},
                        {"credsStore": "other", "credHelpers": {server.host: "fake"}},
                        {"auths": {server.host: {}}, "credsStore": "fake"}):
            with self.subTest(config=members):
                run("cache", "pull", reference, out, PATH=path, HELPED_USER=USER, DOCKER_CONFIG=config("helped-home", **members))
                self.assertEqual(out.read_bytes(), self.bundle.read_bytes())
                out.unlink()

    def test_a_helper_may_give_an_identity_token(self):
        server, out = self.serve("bearer"), folder / "by-identity"
        run("cache", "pull", f"oci://{server.host}/team/h200:1", out, PATH=helpers("good", fake=HELPER), HELPED_USER="<token>",
            DOCKER_CONFIG=config("token-home", credsStore="fake"))
        self.assertEqual(out.read_bytes(), self.bundle.read_bytes())

    def test_a_helper_that_knows_nothing_leaves_it_to_the_file(self):
        server, out = self.serve("bearer"), folder / "by-file"
        path = helpers("empty", none=HELPER.replace("127.0.0.1", "nowhere"))
        members = json.loads((pathlib.Path(login("by-file-home", server.host)) / "config.json").read_text())
        run("cache", "pull", f"oci://{server.host}/team/h200:1", out, PATH=path, DOCKER_CONFIG=config("by-file-home", credsStore="none", **members))
        said = run("cache", "pull", f"oci://{server.host}/team/h200:1", folder / "never", code=1, PATH=path,
                   DOCKER_CONFIG=config("by-none-home", credsStore="none"))
        self.assertIn("docker login " + server.host, said)

    def test_helpers_that_fail_are_named(self):
        server = self.serve("bearer")
        path = helpers("bad", locked="#!/bin/sh\necho 'the keychain is locked'\nexit 1\n", dumb="#!/bin/sh\necho secret-words\n",
                       killed="#!/bin/sh\nkill -9 $$\n")
        for name, expected in (("locked", 'exit status 1, "the keychain is locked"'), ("dumb", "its answer holds no Secret"),
                               ("killed", "signal 9 (SIGKILL)"), ("absent", "cannot start docker-credential-absent: No such file"),
                               ("../bad/locked", "it is no name of a program")):
            said = run("cache", "pull", f"oci://{server.host}/team/h200:1", folder / "never", code=1, PATH=path,
                       DOCKER_CONFIG=config("bad-home", credsStore=name))
            self.assertIn(f"docker-credential-{name}, to which {folder}/bad-home/config.json leaves the login for {server.host}: ", said)
            self.assertIn(expected, said)
            self.assertNotIn("secret-words", said)
        self.assertFalse((folder / "never").exists())

    def test_names_that_are_none(self):
        for text, why in (("registry/name:1", "does not begin with oci://"), ("oci://host", "it has no name"),
                          ("oci://host/name", "it has no tag"), ("oci://host/Name:1", "the name has other"),
                          ("oci://host/name:a b", "the tag has other"), ("oci://ho st/name:1", "is no host"),
                          ("oci://host/name@sha256:12", "the digest is not")):
            self.assertIn(why, run("cache", "pull", text, folder / "never", code=2))

    def test_nobody_listens(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            host = f"127.0.0.1:{taken.getsockname()[1]}"
            self.assertIn(f"http://{host}/v2/a/manifests/1: ", run("cache", "pull", f"oci://{host}/a:1", folder / "never", code=1))

    def test_a_file_that_is_no_bundle_is_not_pushed(self):
        text = folder / "text"
        text.write_text("no bundle\n")
        self.assertIn(str(text), run("cache", "push", text, "oci://127.0.0.1:1/a:1", code=1))


@unittest.skipUnless(shutil.which("docker-registry") and shutil.which("skopeo") and shutil.which("openssl"),
                     "docker-registry, skopeo or openssl is missing: src/cmake/setup.sh --fleet installs them")
class RegistryTest(Case):
    """The real thing, on loopback."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.open_host = cls.start("open", "")
        (folder / "htpasswd").write_text(HTPASSWD)
        cls.closed_host = cls.start(
            "closed", f"auth:\n  htpasswd:\n    realm: fleet\n    path: {folder}/htpasswd\n")

    @classmethod
    def start(cls, name, more, http=""):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            host = f"127.0.0.1:{free.getsockname()[1]}"
        config = folder / f"{name}.yml"
        config.write_text(f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {folder}/{name}\n"
                          f"http:\n  addr: {host}\n{http}{more}")
        with (folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)
        while True:  # until it listens or has ended
            with socket.socket() as knock:
                if knock.connect_ex(("127.0.0.1", int(host.split(":")[1]))) == 0:
                    return host
            if process.poll() is not None:
                raise AssertionError((folder / f"{name}.log").read_text())

    def test_a_bundle_comes_back_as_it_was_and_is_still_signed(self):
        reference = f"oci://{self.open_host}/team/h200:1"
        first = json.loads(run("cache", "push", self.bundle, reference, "--json"))
        self.assertFalse(first["already_there"])
        again = json.loads(run("cache", "push", self.bundle, reference, "--json"))
        self.assertTrue(again["already_there"], "a blob travels once")
        self.assertEqual(again["manifest"], first["manifest"])
        for version in (":1", "@" + first["manifest"]):
            run("cache", "pull", f"oci://{self.open_host}/team/h200{version}", folder / "back")
            self.assertEqual((folder / "back").read_bytes(), self.bundle.read_bytes())
        said = run("cache", "install", folder / "back", "--trusted-keys", folder / "fleet.pub", "--cache", folder / "served")
        self.assertIn("signed by ", said)
        run("cache", "keygen", folder / "stranger")
        run("cache", "install", folder / "back", "--trusted-keys", folder / "stranger.pub", "--cache", folder / "other", code=1)

    def test_skopeo_sees_and_copies_it(self):
        run("cache", "push", self.bundle, f"oci://{self.open_host}/team/seen:1")
        skopeo = ["skopeo", "--insecure-policy"]
        raw = subprocess.run([*skopeo, "inspect", "--raw", "--tls-verify=false", f"docker://{self.open_host}/team/seen:1"],
                             capture_output=True, text=True, check=True).stdout
        manifest = json.loads(raw)
        self.assertEqual(manifest["mediaType"], MANIFEST)
        self.assertEqual([layer["mediaType"] for layer in manifest["layers"]], [LAYER])
        subprocess.run([*skopeo, "copy", "-q", "--src-tls-verify=false", "--dest-tls-verify=false",
                        f"docker://{self.open_host}/team/seen:1", f"docker://{self.open_host}/mirror/seen:2"], check=True)
        run("cache", "pull", f"oci://{self.open_host}/mirror/seen:2", folder / "mirrored")
        self.assertEqual((folder / "mirrored").read_bytes(), self.bundle.read_bytes())

    def test_what_is_not_there_is_named(self):
        said = run("cache", "pull", f"oci://{self.open_host}/team/h200:none", folder / "never", code=1)
        self.assertIn("no manifest: 404 MANIFEST_UNKNOWN", said)

    def test_a_login_is_needed_and_used(self):
        reference = f"oci://{self.closed_host}/team/h200:1"
        self.assertIn("docker login", run("cache", "push", self.bundle, reference, code=1))
        wrong = login("wrong", self.closed_host, password="no")
        self.assertIn("401", run("cache", "push", self.bundle, reference, code=1, DOCKER_CONFIG=wrong))
        right = login("right", self.closed_host)
        run("cache", "push", self.bundle, reference, DOCKER_CONFIG=right)
        self.assertIn("docker login", run("cache", "pull", reference, folder / "never", code=1))
        run("cache", "pull", reference, folder / "private", DOCKER_CONFIG=right)
        self.assertEqual((folder / "private").read_bytes(), self.bundle.read_bytes())
        saved = folder / "auth.json"
        subprocess.run(["skopeo", "login", "--authfile", str(saved), "--tls-verify=false", "-u", USER, "-p", PASSWORD,
                        self.closed_host], check=True, capture_output=True)
        run("cache", "pull", reference, folder / "private2", REGISTRY_AUTH_FILE=str(saved))

    @classmethod
    def certificate(cls, name, extension, authority=None):
        """A certificate with its key, signed by an authority, else by itself."""
        signed = ["-CA", folder / f"{authority}.crt", "-CAkey", folder / f"{authority}.key"] if authority else []
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", f"/CN={name}", "-addext", extension, *signed,
                        "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"], check=True, capture_output=True)

    @classmethod
    def start_secure(cls, name, more="", clients=""):
        if not (folder / "server.crt").exists():
            cls.certificate("authority", "basicConstraints=critical,CA:true")
            cls.certificate("server", "subjectAltName=IP:127.0.0.1", "authority")
            cls.certificate("client", "extendedKeyUsage=clientAuth", "authority")
        return cls.start(name, more, f"  tls:\n    certificate: {folder}/server.crt\n    key: {folder}/server.key\n{clients}")

    def certificates_for(self, host, *names):
        """A home with the folder in which skopeo, too, looks for a registry's certificates."""
        home = pathlib.Path(tempfile.mkdtemp(dir=folder))
        certificates = home / ".config/containers/certs.d" / host
        certificates.mkdir(parents=True)
        for source, target in names:
            shutil.copy(folder / source, certificates / target)
        return str(home)

    def test_a_registry_with_a_certificate_of_ones_own(self):
        host = self.start_secure("secure", f"auth:\n  htpasswd:\n    realm: fleet\n    path: {folder}/htpasswd\n")
        reference, back = f"oci://{host}/team/h200:1", folder / "secured"
        right = login("secure-home", host)
        said = run("cache", "push", self.bundle, reference, code=1, DOCKER_CONFIG=right)
        self.assertIn(f"https://{host}/v2/", said)
        self.assertIn("name its authority's certificate in SSL_CERT_FILE", said, "what is not trusted is told nothing")
        trusted = str(folder / "authority.crt")
        run("cache", "push", self.bundle, reference, DOCKER_CONFIG=right, SSL_CERT_FILE=trusted)
        home = self.certificates_for(host, ("authority.crt", "ca.crt"))
        run("cache", "pull", reference, back, DOCKER_CONFIG=right, HOME=home)
        self.assertEqual(back.read_bytes(), self.bundle.read_bytes())
        helped = config("secure-helped", credHelpers={host: "fake"})
        run("cache", "pull", reference, back, PATH=helpers("good", fake=HELPER), HELPED_USER=USER, DOCKER_CONFIG=helped, HOME=home)
        self.assertIn("docker login", run("cache", "pull", reference, folder / "never", code=1, HOME=home))
        seen = subprocess.run(["skopeo", "--insecure-policy", "inspect", "--raw", "--creds", f"{USER}:{PASSWORD}", f"docker://{host}/team/h200:1"],
                              env={**os.environ, "HOME": home}, capture_output=True, text=True, check=True).stdout
        self.assertEqual(json.loads(seen)["mediaType"], MANIFEST, "skopeo finds the same certificates")
        self.assertIn(f"no file {folder}/missing.crt", run("cache", "pull", reference, folder / "never", code=1, SSL_CERT_FILE=str(folder / "missing.crt")))

    def test_a_registry_that_wants_a_certificate_of_its_clients(self):
        host = self.start_secure("mutual", clients=f"    clientcas:\n      - {folder}/authority.crt\n")
        reference = f"oci://{host}/team/h200:1"
        known = self.certificates_for(host, ("authority.crt", "ca.crt"), ("client.crt", "client.cert"), ("client.key", "client.key"))
        run("cache", "push", self.bundle, reference, HOME=known)
        stranger = self.certificates_for(host, ("authority.crt", "ca.crt"))
        self.assertIn(f"https://{host}/v2/", run("cache", "pull", reference, folder / "never", code=1, HOME=stranger))
        keyless = self.certificates_for(host, ("client.crt", "client.cert"))
        self.assertIn("client.cert has no key: ", run("cache", "pull", reference, folder / "never", code=1, HOME=keyless))

    def test_a_blob_that_the_registry_lost(self):
        reference = f"oci://{self.open_host}/team/lost:1"
        blob = json.loads(run("cache", "push", self.bundle, reference, "--json"))["blob"].split(":")[1]
        data = folder / "open/docker/registry/v2/blobs/sha256" / blob[:2] / blob / "data"
        whole = data.read_bytes()
        try:
            data.write_bytes(whole[:-5] + b"other")
            self.assertIn("its manifest says", run("cache", "pull", reference, folder / "never", code=1))
            data.unlink()
            self.assertIn("no bundle", run("cache", "pull", reference, folder / "never", code=1))
        finally:
            data.write_bytes(whole)


if __name__ == "__main__":
    try:
        if ctypes.util.find_library("curl") is None and ctypes.util.find_library("curl-gnutls") is None:
            print("no libcurl here: registries cannot be asked")
            sys.exit(77)
        unittest.main(verbosity=1)
    finally:
        shutil.rmtree(folder)
