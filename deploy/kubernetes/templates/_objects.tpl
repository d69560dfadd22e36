{{/*
What the other templates share. They read the manifests that kustomize reads, as objects; here values are put into them. Named
templates give text, so that objects are changed in place (dicts are references) or come back as YAML.
*/}}

{{/* The text of a file, in this release's namespace and the cluster's domain. Takes a list: root, path. */}}
{{- define "symphony.text" -}}
{{- $root := index . 0 -}}
{{- $namespace := $root.Release.Namespace -}}
{{- $text := required (printf "%s is not in the chart" (index . 1)) ($root.Files.Get (index . 1)) -}}
{{- $text = $text | replace ".symphony.svc.cluster.local" (printf ".%s.svc.%s" $namespace $root.Values.clusterDomain) -}}
{{- $text | replace "symphony-control.symphony.svc" (printf "symphony-control.%s.svc" $namespace) -}}
{{- end -}}

{{/* One object as it is sent. Takes a list: root, object. */}}
{{- define "symphony.object" -}}
{{- $root := index . 0 -}}
{{- $labels := dict
  "app.kubernetes.io/name" "symphony"
  "app.kubernetes.io/part-of" "symphony"
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version) -}}
---
{{ mergeOverwrite (index . 1) (dict "metadata" (dict "namespace" $root.Release.Namespace "labels" $labels)) | toYaml }}
{{ end -}}

{{/* All objects of a text as they are. Takes a list: root, text. */}}
{{- define "symphony.objects" -}}
{{- $root := index . 0 -}}
{{- range splitList "\n---\n" (index . 1) -}}
{{- include "symphony.object" (list $root (fromYaml .)) -}}
{{- end -}}
{{- end -}}

{{- define "symphony.configuration" -}}
{{- .Values.configuration | default (include "symphony.text" (list . "base/symphony.toml")) -}}
{{- end -}}

{{/*
Puts into a stateful set what all roles have. Takes a dict: root, set (changed), values (the role's), image, env (a list that goes
before the base's, of variables by name) and certificates (the file with the changes for cert-manager).
*/}}
{{- define "symphony.role" -}}
{{- $spec := .set.spec.template.spec -}}
{{- $container := first $spec.containers -}}
{{- $_ := set .set.spec.template.metadata "annotations"
  (dict "checksum/configuration" (include "symphony.configuration" .root | sha256sum)) -}}
{{- $_ = set $container "image" .image -}}
{{- with .values.resources }}{{ $_ = set $container "resources" . }}{{ end -}}
{{- $told := list -}}
{{- range $name, $value := mergeOverwrite dict .root.Values.env (.values.env | default dict) -}}
{{- $told = append $told (dict "name" $name "value" $value) -}}
{{- end -}}
{{- $volumes := $spec.volumes -}}
{{- if eq .root.Values.certificates "cert-manager" -}}
{{- $change := (include "symphony.text" (list .root .certificates) | fromYaml).spec.template.spec -}}
{{- with $change.containers }}{{ $told = concat $told (first .).env }}{{ end -}}
{{- $volumes = list -}}
{{- range $spec.volumes -}}
{{- $volumes = append $volumes (eq .name "certificates" | ternary (omit (first $change.volumes) "secret") .) -}}
{{- end -}}
{{- end -}}
{{- /* The first of a name is the one that counts. */ -}}
{{- $env := list -}}
{{- $names := list -}}
{{- range concat $told .env $container.env -}}
{{- if not (has .name $names) }}{{ $env = append $env . }}{{ end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $_ = set $container "env" $env -}}
{{- $_ = set $container "volumeMounts" (concat $container.volumeMounts (.values.volumeMounts | default list)) -}}
{{- $_ = set $spec "volumes" (concat $volumes (.values.volumes | default list)) -}}
{{- $_ = mergeOverwrite $spec (.values.pod | default dict) -}}
{{- end -}}
