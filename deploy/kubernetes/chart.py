"""Checks the chart, for check.py: it must give the objects of the overlays, with each one's values.yaml, and do elsewhere what its values say."""
import difflib, hashlib, json, pathlib, re, shutil, subprocess, tempfile

import yaml

HERE = pathlib.Path(__file__).parent


def helm():
    """The program `helm`, if there is one: that of deploy/setup/helm.sh, or the system's."""
    cached = HERE.parents[1] / ".cache/helm/helm"
    return str(cached) if cached.exists() else shutil.which("helm")


def template(*arguments, namespace="symphony"):
    """The objects that the chart gives, or what helm says against it."""
    done = subprocess.run([helm(), "template", "symphony", str(HERE), "--namespace", namespace, *arguments], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()
    return [object for object in yaml.safe_load_all(done.stdout) if object], None


def plain(objects):
    """Objects by kind and name, without what the chart has otherwise: labels, what Helm is told by annotations, and how a change of the
    configuration gets into pods. The namespace is not in the chart: `helm --create-namespace` or namespace.yaml makes it."""
    (configuration,) = [o for o in objects if o["kind"] == "ConfigMap"]
    name, digest = configuration["metadata"]["name"], hashlib.sha256(configuration["data"]["symphony.toml"].encode()).hexdigest()
    found = {}
    for object in yaml.safe_load_all(yaml.safe_dump_all(objects)):
        metadata = object["metadata"]
        if object["kind"] == "Namespace":
            continue
        metadata.pop("labels", None)
        annotations = metadata.pop("annotations", {})
        annotations.pop("helm.sh/resource-policy", None)
        if annotations:
            metadata["annotations"] = annotations
        if object["kind"] == "ConfigMap":
            metadata["name"] = "symphony"
        if object["kind"] == "StatefulSet":
            template = object["spec"]["template"]
            if template["metadata"].get("annotations") == {"checksum/configuration": digest}:
                del template["metadata"]["annotations"]
            # kustomize puts those that it changes first; their order means nothing.
            template["spec"]["volumes"].sort(key=lambda volume: volume["name"])
            for volume in template["spec"]["volumes"]:
                if volume.get("configMap") == {"name": name}:
                    volume["configMap"]["name"] = "symphony"
        found[object["kind"], metadata["name"]] = yaml.safe_dump(object).splitlines()
    return found


def differences(name, by_kustomize, by_helm):
    wrong, ours, theirs = [], plain(by_helm), plain(by_kustomize)
    for kind, of in sorted(ours.keys() | theirs.keys()):
        lines = difflib.unified_diff(theirs.get((kind, of), []), ours.get((kind, of), []), "kustomize", "helm", n=1, lineterm="")
        wrong += [f"{name}: {kind} {of}: {line}" for line in lines]
    labels = {"app.kubernetes.io/name": "symphony", "app.kubernetes.io/part-of": "symphony"}
    wrong += [f"{name}: {o['kind']} {o['metadata']['name']}: expected the labels {labels}" for o in by_helm
              if not labels.items() <= o["metadata"].get("labels", {}).items()]
    return wrong


# What no overlay has: another namespace and domain, a kind of GPU that no component has, other schedulers, a certificate for clients.
GPUS = '[{ kind = "emulated", count = 3, memory_mb = 1024 }]'
ELSEWHERE = f"""
image: registry.example/symphony:1
clusterDomain: example.internal
certificates: cert-manager
env: {{ SYMPHONY__CLUSTER__TIMING: lan, SYMPHONY__LOG__LEVEL: debug }}
schedulers: {{ firstId: 9, replicas: 5, env: {{ SYMPHONY__LOG__LEVEL: info }}, pod: {{ priorityClassName: symphony }} }}
frontends:
  service: {{ type: LoadBalancer }}
  tenantsSecret: tenants
  resources: {{ requests: {{ cpu: "4" }} }}
  volumes: [{{ name: public, secret: {{ secretName: public }} }}]
  volumeMounts: [{{ name: public, mountPath: /etc/symphony/public, readOnly: true }}]
backends:
  l4:
    image: registry.example/symphony-cuda:1
    gpus: {{ count: 2, memoryMb: 22000, product: NVIDIA-L4 }}
    autoscale: {{ min: 2, max: 4 }}
    resources: {{ requests: {{ cpu: "8" }} }}
  h100: {{ image: registry.example/symphony-cuda:1, replicas: 3 }}
  emulated: {{ gpus: {{ count: 2, memoryMb: 1024 }}, autoscale: {{ min: 1, max: 3 }}, env: {{ SYMPHONY__BACKEND__GPUS: '{GPUS}' }} }}
models: {{ size: 1Ti, storageClass: shared }}
"""
# What the chart refuses: values, and what is named.
IMAGE = "image=registry.example/symphony:1"
REFUSED = [
    ([], "image: name one of a registry"),
    (["image=symphony"], "image"),
    (["image=registry.example/symphony"], "image"),
    ([IMAGE, "frontend.replicas=2"], "frontend"),
    ([IMAGE, "certificates=vault"], "certificates"),
    ([IMAGE, "schedulers.replicas=0"], "replicas"),
    ([IMAGE, "frontends.env.SYMPHONY__LOG__SPANS=1"], "SYMPHONY__LOG__SPANS"),
    ([IMAGE, "backends.h100.replicas=1"], "backends.h100.image"),
    ([IMAGE, "backends.l4.image=registry.example/cuda:1"], "backends.l4.gpus"),
    # A label or a variable that is a number is refused by the API only.
    ([IMAGE, "backends.4090.image=registry.example/cuda:1", "backends.4090.gpus.count=1", "backends.4090.gpus.memoryMb=24000",
      "backends.4090.gpus.product=RTX-4090"], "4090"),
    ([IMAGE, "backends.emulated.autoscale.min=1", "backends.emulated.autoscale.max=2"], "backends.emulated.gpus"),
]


def elsewhere(overlay_class, program):
    with tempfile.TemporaryDirectory() as folder:
        values = pathlib.Path(folder) / "values.yaml"
        values.write_text(ELSEWHERE)
        # Ids 9 to 13 need a configuration that names them.
        configuration = pathlib.Path(folder) / "symphony.toml"
        text = (HERE / "base/symphony.toml").read_text().replace(".symphony.svc.cluster.local", ".serving.svc.example.internal")
        first = text.index("[[cluster.scheduler]]")
        last = text.index("[scheduler]")
        replica = text[first:].split("\n\n")[0]
        own = [re.sub(r"scheduler-1\b", f"scheduler-{id}", replica).replace("id = 1", f"id = {id}") for id in range(9, 14)]
        configuration.write_text(text[:first] + "\n\n".join(own) + "\n\n" + text[last:].replace("id = 1", "id = 9"))
        objects, wrong = template("--values", str(values), "--set-file", f"configuration={configuration}", namespace="serving")
        if wrong:
            return [f"chart elsewhere: {wrong}"]
    overlay = overlay_class("chart elsewhere", program, objects, domain="example.internal")
    wrong = overlay.check()
    text = json.dumps(objects)
    wrong += [f"chart elsewhere: {left} is still there" for left in (".symphony.svc", ".svc.cluster.local", '"namespace": "symphony"') if left in text]
    spec = {role: overlay.by["StatefulSet", f"symphony-{role}"]["spec"] for role in ("scheduler", "frontend", "backend-l4", "backend-h100", "backend-emulated")}
    pod = {role: of["template"]["spec"] for role, of in spec.items()}
    container = {role: of["containers"][0] for role, of in pod.items()}
    expected = [
        ("env", {role: [e["value"] for e in of["env"] if e["name"] in ("SYMPHONY__CLUSTER__TIMING", "SYMPHONY__LOG__LEVEL")]
                 for role, of in container.items()}, {role: ["lan", "info" if role == "scheduler" else "debug"] for role in container}),
        ("schedulers.pod", pod["scheduler"].get("priorityClassName"), "symphony"),
        ("frontends.service", overlay.by["Service", "symphony"]["spec"].get("type"), "LoadBalancer"),
        ("frontends.tenantsSecret", [v["secret"]["secretName"] for v in pod["frontend"]["volumes"] if v["name"] == "tenants"], ["tenants"]),
        ("frontends.resources", container["frontend"]["resources"], {"requests": {"cpu": "4"}}),
        ("frontends.volumes", {"name": "public", "secret": {"secretName": "public"}} in pod["frontend"]["volumes"], True),
        ("frontends.volumeMounts", "/etc/symphony/public" in [m["mountPath"] for m in container["frontend"]["volumeMounts"]], True),
        ("backends.l4.gpus.product", pod["backend-l4"]["nodeSelector"], {"nvidia.com/gpu.product": "NVIDIA-L4"}),
        ("backends.l4.resources", container["backend-l4"]["resources"], {"requests": {"cpu": "8"}, "limits": {"nvidia.com/gpu": 2}}),
        ("backends.emulated.env", [e["value"] for e in container["backend-emulated"]["env"] if e["name"] == "SYMPHONY__BACKEND__GPUS"], [GPUS]),
        ("backends.h100.replicas", spec["backend-h100"]["replicas"], 3),
        ("autoscale", {(s["spec"]["scaleTargetRef"]["name"], s["spec"]["minReplicaCount"], s["spec"]["maxReplicaCount"],
                        s["spec"]["triggers"][0]["metadata"]["gpusPerReplica"]) for s in overlay.of("ScaledObject")},
         {("symphony-backend-l4", 2, 4, "2"), ("symphony-backend-emulated", 1, 3, "2")}),
        ("models", [c["spec"] for c in overlay.of("PersistentVolumeClaim")],
         [{"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Ti"}}, "storageClassName": "shared"}]),
    ]
    return wrong + [f"chart elsewhere: {value}: found {found}, expected {should}" for value, found, should in expected if found != should]


def check(overlay_class, render, program, overlays):
    """What is wrong with the chart: with each overlay's values, with none but an image, and where no overlay is."""
    wrong = []
    for name in overlays:
        values = HERE / "overlays" / name / "values.yaml"
        lint = subprocess.run([helm(), "lint", "--strict", str(HERE), "--values", str(values)], capture_output=True, text=True)
        if lint.returncode:
            wrong.append(f"chart {name}: helm lint: {lint.stdout.strip()} {lint.stderr.strip()}")
        objects, refused = template("--values", str(values))
        if refused:
            wrong.append(f"chart {name}: {refused}")
            continue
        overlay = overlay_class(f"chart {name}", program, objects, is_open=name == "trial")
        wrong += overlay.check() + differences(f"chart {name}", render(f"overlays/{name}"), objects)
        described = yaml.safe_load((HERE / "Chart.yaml").read_text())
        if {described["version"], described["appVersion"]} != {overlay.version}:
            wrong.append(f"Chart.yaml: versions {described['version']} and {described['appVersion']}; the program is {overlay.version}")
    image = "registry.example/symphony:0"
    objects, refused = template("--set", f"image={image}")
    base = yaml.safe_load(yaml.safe_dump(render("base")).replace("image: symphony\n", f"image: {image}\n"))
    wrong += [f"chart: {refused}"] if refused else differences("chart without values", base, objects)
    for values, expected in REFUSED:
        _, refused = template(*(argument for value in values for argument in ("--set", value)))
        if expected not in (refused or ""):
            wrong.append(f"chart: {values}: expected helm to refuse it and to name {expected}; it says {refused or 'nothing'}")
    wrong += elsewhere(overlay_class, program)
    said = subprocess.run([helm(), "version", "--short"], capture_output=True, text=True).stdout.strip()
    print(f"check: chart: helm {said}: compared with {', '.join(overlays)} and base; {len(wrong)} wrong")
    return wrong
