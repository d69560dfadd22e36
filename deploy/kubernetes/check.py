#!/usr/bin/env python3
"""Checks the manifests: against the API's schemas, against each other, and against the program.

    deploy/kubernetes/check.py SYMPHONY [OVERLAY...]

Every overlay is rendered by `kubectl kustomize` (or kustomize). Its objects must be of the schemas of Kubernetes (kubernetes-validate;
kinds of KEDA and cert-manager are not there and are counted). Then each pod's environment is put together as Kubernetes would, and the
program says whether it takes the configuration (`--dump-config`): ports, probes, services and network policies must be those that it
would listen on, and the certificates of its name must be mounted: those that certificates.sh makes when it is run, or that cert-manager's
objects ask for. Frontends must say who may call. Images must be named by the overlay, with a tag.

Where helm is (deploy/setup/helm.sh), the chart is checked in the same way with each overlay's values.yaml, linted, and must give the
overlay's objects. Exit status: 0 well, 1 not, 2 something is missing.
"""
import base64, json, os, pathlib, re, shutil, subprocess, sys, tempfile, tomllib

try:
    import yaml
    from kubernetes_validate import utils as kubernetes_validate
except ImportError as missing:
    sys.exit(print(f"check: {missing}; run `make setup-tests`", file=sys.stderr) or 2)

import chart

HERE = pathlib.Path(__file__).parent
# The oldest release that has everything that is used here (preStop's sleep is on by default from 1.30, ordinals from 1.27), and a new one.
RELEASES = ["1.32", "1.36"]
OTHERS = {"keda.sh", "cert-manager.io"}
# What a pod gets where Kubernetes fills something in.
POD_IP = "10.1.2.3"


# `labels` without selectors, and patches that remove what an object does not have to have, as the manifests use them.
KUSTOMIZE = 5


def kustomize():
    """The command that renders, new enough."""
    old = []
    for command, asked in ((["kubectl", "kustomize"], ["kubectl", "version", "--client", "-o", "json"]),
                           (["kustomize", "build"], ["kustomize", "version"])):
        if shutil.which(command[0]):
            said = subprocess.run(asked, capture_output=True, text=True).stdout
            version = json.loads(said or "{}").get("kustomizeVersion", "none") if command[0] == "kubectl" else said.strip()
            # Release candidates and older ones wrap it: `{kustomize/v4.5.7  2022-…}`.
            found = re.search(r"v(\d+)\.", version)
            if found and int(found[1]) >= KUSTOMIZE:
                return command
            old.append(f"{command[0]} has kustomize {version}")
    print(f"check: kustomize {KUSTOMIZE} or later is needed: {'; '.join(old) or 'neither kubectl nor kustomize is here'}", file=sys.stderr)
    raise SystemExit(2)


def render(folder):
    done = subprocess.run([*kustomize(), str(HERE / folder)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"check: {folder}: {done.stderr.strip()}")
    return [object for object in yaml.safe_load_all(done.stdout) if object]


def named(certificate):
    """The URI in a certificate."""
    done = subprocess.run(["openssl", "x509", "-noout", "-ext", "subjectAltName"], input=certificate, capture_output=True, check=True)
    return re.search(r"URI:([^,\s]+)", done.stdout.decode())[1]


def secrets(program, overlay):
    """What certificates.sh prints for the overlay's stateful sets: files by secret."""
    sets = []
    for of, ordinals in overlay.sets():
        name = of["metadata"]["name"].removeprefix("symphony-")
        sets.append(f"{name}={','.join(map(str, ordinals)) if name == 'scheduler' else len(ordinals)}")
    (namespace,) = {of["metadata"]["namespace"] for of, _ in overlay.sets()}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([HERE / "certificates.sh", f"{folder}/pki", *sets], capture_output=True, text=True,
                              env={**os.environ, "SYMPHONY": program, "NAMESPACE": namespace})
    if done.returncode:
        raise SystemExit(f"check: certificates.sh {' '.join(sets)}: {done.stderr.strip()}")
    return {s["metadata"]["name"]: {file: base64.b64decode(value) for file, value in s["data"].items()} for s in yaml.safe_load_all(done.stdout)}


class Overlay:
    def __init__(self, name, program, objects, is_open=False, domain="cluster.local"):
        self.name, self.program, self.objects, self.is_open, self.domain, self.wrong = name, program, objects, is_open, domain, []
        self.version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        self.by = {(o["kind"], o["metadata"]["name"]): o for o in self.objects}
        self.issued = secrets(program, self)

    def say(self, where, what):
        line = f"{self.name}: {where}: {what}"
        if line not in self.wrong:
            self.wrong.append(line)

    def of(self, kind):
        return [o for o in self.objects if o["kind"] == kind]

    def schemas(self):
        known = others = 0
        for object in self.objects:
            if object["apiVersion"].split("/")[0] in OTHERS:
                others += 1
                continue
            known += 1
            for release in RELEASES:
                try:
                    kubernetes_validate.validate(object, release, strict=True)
                except Exception as error:  # its classes differ between releases of the library
                    what = getattr(error, "message", str(error))
                    self.say(f"{object['kind']} {object['metadata']['name']}", f"{release}: {what}")
        return known, others

    def sets(self):
        """Every stateful set, and the ordinals that its pods may have: as many as an autoscaler may ask for, where there is one."""
        for of in self.of("StatefulSet"):
            start, name = of["spec"].get("ordinals", {}).get("start", 0), of["metadata"]["name"]
            (scaled,) = [s for s in self.of("ScaledObject") if s["spec"]["scaleTargetRef"]["name"] == name] or [None]
            replicas = of["spec"].get("replicas", 1)
            if scaled:
                if "replicas" in of["spec"]:
                    self.say(f"StatefulSet {name}", f"replicas: {replicas} would be set again by each apply; a ScaledObject scales it")
                replicas = scaled["spec"]["maxReplicaCount"]
            elif "replicas" not in of["spec"]:
                self.say(f"StatefulSet {name}", "neither replicas nor a ScaledObject says how many pods")
            yield of, range(start, start + replicas)

    def pods(self):
        """The pods of every stateful set, the first and the last one where there are many: its name, ordinal, pod template."""
        for of, ordinals in self.sets():
            for ordinal in ordinals if len(ordinals) <= 3 else (ordinals[0], ordinals[-1]):
                yield of, f"{of['metadata']['name']}-{ordinal}", ordinal

    def images(self):
        for of in self.of("StatefulSet"):
            for container in of["spec"]["template"]["spec"]["containers"]:
                image, where = container["image"], f"StatefulSet {of['metadata']['name']}"
                path, _, tag = image.rpartition("/")[2].partition(":")
                if "/" not in image:
                    self.say(where, f"image {image} is the name in the base; the overlay's `images` must name one of a registry")
                elif "@sha256:" not in image and tag in ("", "latest"):
                    self.say(where, f"image {image} has no tag")
                elif image.startswith("localhost/") and tag != self.version:
                    self.say(where, f"image {image}; `make image` makes {self.version}")

    def environment(self, container, pod, ordinal):
        filled = {"metadata.name": pod, "status.podIP": POD_IP, "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal)}
        values = {}
        for variable in container.get("env", []):
            if "value" in variable:
                # $(NAME) of a variable that comes later stays as it is: so does Kubernetes.
                value = re.sub(r"\$\((\w+)\)", lambda m: values.get(m[1], m[0]), variable["value"])
            else:
                value = filled[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            values[variable["name"]] = value
        return values

    def configuration(self, of, pod, ordinal, mounted):
        container = of["spec"]["template"]["spec"]["containers"][0]
        role = container["args"][0]
        environment = self.environment(container, pod, ordinal)
        command = [self.program, role, "--config", str(mounted), *container["args"][3:], "--dump-config"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            self.say(pod, done.stderr.strip())
            return role, None
        return role, tomllib.loads(done.stdout)

    def shown(self, secret, file):
        """Whose certificate is in a file of a secret: one that certificates.sh prints, or that a Certificate of cert-manager asks for."""
        asked = [c for c in self.of("Certificate") if c["spec"]["secretName"] == secret]
        if asked:
            return asked[0]["spec"].get("uris", [None])[0] if file == "tls.crt" else None
        data = self.issued.get(secret, {})
        return named(data[file]) if file in data else None

    def held(self, secret):
        """The files of a secret."""
        if any(c["spec"]["secretName"] == secret for c in self.of("Certificate")):
            return {"ca.crt", "tls.crt", "tls.key"}
        return set(self.issued.get(secret, {}))

    def certificate(self, of, pod, role, config):
        """What the process is told to show is mounted, and is of its name."""
        security = {key: pathlib.PurePath(config["security"][key]) for key in ("ca", "cert", "key")}
        expected = f"spiffe://{config['cluster']['name']}/{role}/{config[role]['id'] if role == 'scheduler' else config[role]['name']}"
        volume = next(v for v in of["spec"]["template"]["spec"]["volumes"] if v["name"] == "certificates")
        # By the name in the folder: the secret, and the file in it.
        if "csi" in volume:
            files = {name: (None, name) for name in ("ca.crt", "tls.crt", "tls.key")}
        elif "projected" in volume:
            files = {i["path"]: (s["secret"]["name"], i["key"]) for s in volume["projected"]["sources"] for i in s["secret"]["items"]}
        else:
            secret = volume["secret"]["secretName"]
            files = {name: (secret, name) for name in self.held(secret)}
        for path in security.values():
            if str(path.parent) != "/etc/symphony/pki" or path.name not in files:
                self.say(pod, f"{path} is not among what is mounted: {', '.join(sorted(files))}")
                return
            secret, file = files[path.name]
            if secret and file not in self.held(secret):
                self.say(pod, f"nothing puts {file} into the secret {secret}")
        if "csi" in volume:
            found = volume["csi"]["volumeAttributes"]["csi.cert-manager.io/uri-sans"].replace("${POD_NAME}", pod)
        else:
            found = self.shown(*files[security["cert"].name])
        if found != expected:
            self.say(pod, f"the certificate is for {found}, the process is {expected}")
        if "csi" not in volume and files[security["key"].name][0] != files[security["cert"].name][0]:
            self.say(pod, "certificate and key are of different secrets")

    def ports(self, of, pod, role, config):
        own = config[role]
        listens = {int(own[key].rsplit(":", 1)[1]) for key in ("metrics", "exec", "grpc", "rest", "data") if key in own}
        if role == "scheduler":
            (replica,) = [r for r in config["cluster"]["scheduler"] if r["id"] == own["id"]]
            for key in ("control", "dispatch", "beat"):
                host, port = replica[key].rsplit(":", 1)
                listens.add(int(port))
                # The kubelet writes this name, and no shorter one, into the pod's own /etc/hosts.
                full = f"{pod}.{of['spec']['serviceName']}.{of['metadata']['namespace']}.svc.{self.domain}"
                if host != full:
                    self.say(pod, f"{key} is at {host}; its own name is {full}")
            if not self.by[("Service", of["spec"]["serviceName"])]["spec"].get("publishNotReadyAddresses"):
                self.say(pod, "its name is not published before it is ready, but replicas wait for each other")
        container = of["spec"]["template"]["spec"]["containers"][0]
        named = {port["name"]: port["containerPort"] for port in container["ports"]}
        if set(named.values()) != listens:
            self.say(pod, f"containerPorts are {sorted(named.values())}; the program listens on {sorted(listens)}")
        metrics = int(own["metrics"].rsplit(":", 1)[1])
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            get = container[probe]["httpGet"]
            if named.get(get["port"], get["port"]) != metrics or get["path"] not in ("/health/live", "/health/ready"):
                self.say(pod, f"{probe} asks {get}; health is at {metrics}")
        # The cluster tells tools a frontend's metrics address, and schedulers and frontends the others'.
        for key in {"frontend": ["metrics", "data"], "backend": ["exec"]}.get(role, []):
            if not own[key].startswith(f"{POD_IP}:"):
                self.say(pod, f"{role}.{key} is {own[key]}, by which no process reaches it")
        labels = of["spec"]["template"]["metadata"]["labels"]
        policies = [p for p in self.of("NetworkPolicy") if p["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]
        allowed = {port["port"] for p in policies for rule in p["spec"]["ingress"] for port in rule["ports"]}
        if allowed != listens:
            self.say(pod, f"network policies let {sorted(allowed)} in; the program listens on {sorted(listens)}")
        for service in self.of("Service"):
            if service["spec"]["selector"].items() <= labels.items():
                for port in service["spec"]["ports"]:
                    target = port.get("targetPort", port["port"])
                    if named.get(target, target) not in listens:
                        self.say(f"Service {service['metadata']['name']}", f"{target} is no port of {pod}")
        budgets = [b for b in self.of("PodDisruptionBudget") if b["spec"]["selector"]["matchLabels"].items() <= labels.items()]
        if len(budgets) != 1:
            self.say(pod, f"{len(budgets)} disruption budgets; expected one")

    def door(self, of, pod, config):
        """Keys say who calls, from a secret that is mounted as a folder, so that a change is followed; only `trial` is open to all."""
        tenants, is_open = config["frontend"].get("tenants"), config["security"].get("insecure_public", False)
        if not tenants or is_open:
            if not self.is_open or tenants:
                self.say(pod, f"frontend.tenants is {tenants or 'not set'}, security.insecure_public {is_open}: who may call is not said")
            return
        spec = of["spec"]["template"]["spec"]
        mounts = {m["mountPath"]: m for m in spec["containers"][0]["volumeMounts"]}
        mount = mounts.get(str(pathlib.PurePath(tenants).parent), {})
        secrets = [v["name"] for v in spec["volumes"] if "secret" in v]
        if mount.get("name") not in secrets or "subPath" in mount:
            self.say(pod, f"frontend.tenants is {tenants}, whose folder is no secret that is mounted")

    def gpus(self, of, pod, config):
        """As many GPUs as the configuration has are asked of the device plug-in."""
        limits = of["spec"]["template"]["spec"]["containers"][0]["resources"].get("limits", {})
        asked = sum(int(v) for k, v in limits.items() if k.endswith("/gpu"))
        own = config["backend"]
        count = sum(g["count"] for g in own["gpus"]) if own["device"] == "cuda" else 0
        if asked != count:
            self.say(pod, f"{asked} GPUs are asked for; backend.gpus has {count}")

    def viewer(self, scaled):
        """What KEDA shows to the schedulers."""
        for trigger in scaled["spec"]["triggers"]:
            authentication = self.by[("TriggerAuthentication", trigger["authenticationRef"]["name"])]
            refs = {ref["parameter"]: (ref["name"], ref["key"]) for ref in authentication["spec"]["secretTargetRef"]}
            for secret, key in refs.values():
                if key not in self.held(secret):
                    self.say("TriggerAuthentication", f"nothing puts {key} into the secret {secret}")
            uri = self.shown(*refs["tlsClientCert"])
            if not uri or not uri.startswith("spiffe://symphony/viewer/"):
                self.say("TriggerAuthentication", f"KEDA shows {uri}; expected a viewer's certificate")

    def operator(self):
        """Where cert-manager issues, operators' tools get theirs too: certificates.sh makes one in its folder."""
        uris = [uri for c in self.of("Certificate") for uri in c["spec"].get("uris", [])]
        if uris and not any("/operator/" in uri for uri in uris):
            self.say("Certificate", "none is of an operator")

    def scaled(self):
        for scaled in self.of("ScaledObject"):
            target = self.by.get((scaled["spec"]["scaleTargetRef"]["kind"], scaled["spec"]["scaleTargetRef"]["name"]))
            name = f"ScaledObject {scaled['metadata']['name']}"
            if target is None:
                self.say(name, "its target is not there")
                continue
            environment = self.environment(target["spec"]["template"]["spec"]["containers"][0], "pod-0", 0)
            self.viewer(scaled)
            for trigger in scaled["spec"]["triggers"]:
                wanted = trigger["metadata"]
                host, port = wanted["scalerAddress"].rsplit(":", 1)
                service = self.by.get(("Service", host.split(".")[0]))
                if service is None or int(port) not in [p["port"] for p in service["spec"]["ports"]]:
                    self.say(name, f"{wanted['scalerAddress']} is no service")
                if wanted["subcluster"] != environment["SYMPHONY__BACKEND__SUBCLUSTER"]:
                    self.say(name, f"sub-cluster {wanted['subcluster']} is not that of its target")
                if f'kind = "{wanted["gpuKind"]}"' not in environment["SYMPHONY__BACKEND__GPUS"]:
                    self.say(name, f"GPU kind {wanted['gpuKind']} is not that of its target")

    def check(self):
        known, others = self.schemas()
        (configuration,) = self.of("ConfigMap")
        pods = 0
        with tempfile.TemporaryDirectory() as folder:
            mounted = pathlib.Path(folder) / "symphony.toml"
            mounted.write_text(configuration["data"]["symphony.toml"])
            for of, pod, ordinal in self.pods():
                pods += 1
                role, config = self.configuration(of, pod, ordinal, mounted)
                if config is not None:
                    self.certificate(of, pod, role, config)
                    self.ports(of, pod, role, config)
                    if role == "backend":
                        self.gpus(of, pod, config)
                    if role == "frontend":
                        self.door(of, pod, config)
        self.images()
        self.operator()
        self.scaled()
        print(f"check: {self.name}: {known} objects of Kubernetes {' and '.join(RELEASES)}, {others} of KEDA and cert-manager "
              f"(their schemas are not here), {pods} pods; {len(self.wrong)} wrong")
        return self.wrong


def main():
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        print(__doc__, file=sys.stderr)
        return 2
    program = os.path.abspath(sys.argv[1])
    overlays = sys.argv[2:] or sorted(path.name for path in (HERE / "overlays").iterdir())
    wrong = [line for name in overlays for line in Overlay(name, program, render(f"overlays/{name}"), is_open=name == "trial").check()]
    if chart.helm():
        wrong += chart.check(Overlay, render, program, overlays)
    else:
        print("check: chart: skipped, since helm is not here (deploy/setup/helm.sh)")
    for line in wrong:
        print(f"check: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
