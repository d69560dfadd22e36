#!/usr/bin/env python3
"""Checks the manifests: against the API's schemas, against each other, and against the program.

    deploy/kubernetes/check.py SYMPHONY [OVERLAY...]

Every overlay is rendered by `kubectl kustomize` (or kustomize). Its objects must be of the schemas of Kubernetes (kubernetes-validate;
kinds of KEDA and cert-manager are not there and are counted). Then each pod's environment is put together as Kubernetes would, and the
program says whether it takes the configuration (`--dump-config`): ports, probes, services and network policies must be those that it
would listen on, and the certificates of its name must be mounted.
Exit status: 0 well, 1 not, 2 something is missing.
"""
import os, pathlib, re, shutil, subprocess, sys, tempfile, tomllib

try:
    import yaml
    from kubernetes_validate import utils as kubernetes_validate
except ImportError as missing:
    sys.exit(print(f"check: {missing}; run `make setup-tests`", file=sys.stderr) or 2)

HERE = pathlib.Path(__file__).parent
# The oldest release that has everything that is used here (preStop's sleep is on by default from 1.30, ordinals from 1.27), and a new one.
RELEASES = ["1.32", "1.36"]
OTHERS = {"keda.sh", "cert-manager.io"}
# What a pod gets where Kubernetes fills something in.
POD_IP = "10.1.2.3"


def render(overlay):
    for command in (["kubectl", "kustomize"], ["kustomize", "build"]):
        if shutil.which(command[0]):
            done = subprocess.run([*command, str(HERE / "overlays" / overlay)], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"check: {overlay}: {done.stderr.strip()}")
            return [object for object in yaml.safe_load_all(done.stdout) if object]
    print("check: neither kubectl nor kustomize is here", file=sys.stderr)
    raise SystemExit(2)


class Overlay:
    def __init__(self, name, program):
        self.name, self.program, self.wrong = name, program, []
        self.objects = render(name)
        self.by = {(o["kind"], o["metadata"]["name"]): o for o in self.objects}

    def say(self, where, what):
        self.wrong.append(f"{self.name}: {where}: {what}")

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

    def pods(self):
        """Every pod: its name, ordinal, pod template."""
        for of in self.of("StatefulSet"):
            start = of["spec"].get("ordinals", {}).get("start", 0)
            for ordinal in range(start, start + of["spec"]["replicas"]):
                yield of, f"{of['metadata']['name']}-{ordinal}", ordinal

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

    def certificate(self, of, pod, role, config):
        """The certificate's file is one that certificates.sh or cert-manager puts there, for this name."""
        security = config["security"]
        name = str(config[role]["id"]) if role == "scheduler" else config[role]["name"]
        volume = next(v for v in of["spec"]["template"]["spec"]["volumes"] if v["name"] == "certificates")
        if "csi" in volume:
            uri = volume["csi"]["volumeAttributes"]["csi.cert-manager.io/uri-sans"].replace("${POD_NAME}", pod)
            expected = "/etc/symphony/pki/tls.crt"
        else:
            uri = f"spiffe://{config['cluster']['name']}/{role}/{name}"
            expected = f"/etc/symphony/pki/{role}-{name}.pem"
        if uri != f"spiffe://{config['cluster']['name']}/{role}/{name}":
            self.say(pod, f"the certificate is for {uri}, the process is {role} {name}")
        if security["cert"] != expected:
            self.say(pod, f"security.cert is {security['cert']}; expected {expected}")
        if "projected" in volume:
            paths = [i["path"] for s in volume["projected"]["sources"] for i in s["secret"]["items"]]
            for file in (security["ca"], security["cert"], security["key"]):
                if pathlib.PurePath(file).name not in paths:
                    self.say(pod, f"{file} is not among what is mounted: {', '.join(paths)}")

    def ports(self, of, pod, role, config):
        own = config[role]
        listens = {int(own[key].rsplit(":", 1)[1]) for key in ("metrics", "exec", "grpc", "rest", "data") if key in own}
        if role == "scheduler":
            (replica,) = [r for r in config["cluster"]["scheduler"] if r["id"] == own["id"]]
            for key in ("control", "dispatch", "beat"):
                host, port = replica[key].rsplit(":", 1)
                listens.add(int(port))
                # The kubelet writes this name, and no shorter one, into the pod's own /etc/hosts.
                full = f"{pod}.{of['spec']['serviceName']}.{of['metadata']['namespace']}.svc.cluster.local"
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

    def gpus(self, of, pod, config):
        """As many GPUs as the configuration has are asked of the device plug-in."""
        limits = of["spec"]["template"]["spec"]["containers"][0]["resources"].get("limits", {})
        asked = sum(int(v) for k, v in limits.items() if k.endswith("/gpu"))
        own = config["backend"]
        count = sum(g["count"] for g in own["gpus"]) if own["device"] == "cuda" else 0
        if asked != count:
            self.say(pod, f"{asked} GPUs are asked for; backend.gpus has {count}")

    def scaled(self):
        for scaled in self.of("ScaledObject"):
            target = self.by.get((scaled["spec"]["scaleTargetRef"]["kind"], scaled["spec"]["scaleTargetRef"]["name"]))
            name = f"ScaledObject {scaled['metadata']['name']}"
            if target is None:
                self.say(name, "its target is not there")
                continue
            environment = self.environment(target["spec"]["template"]["spec"]["containers"][0], "pod-0", 0)
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
    wrong = [line for name in overlays for line in Overlay(name, program).check()]
    for line in wrong:
        print(f"check: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
