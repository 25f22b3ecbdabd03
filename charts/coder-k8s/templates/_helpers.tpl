{{- /*
Replaces null values by the defaults of `values.yaml`, because Helm removes null values. Every template includes this first.
*/ -}}
{{- define "coder-k8s.defaults" -}}
{{- include "coder-k8s.fill" (dict "values" .Values "defaults" (.Files.Get "files/values.yaml" | fromYaml)) -}}
{{- end -}}

{{- /* `resources` is not merged with its default: without `limits` there is no limit. */ -}}
{{- define "coder-k8s.fill" -}}
{{- range $name, $default := .defaults -}}
{{- $value := index $.values $name -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := set $.values $name $default -}}
{{- else if and (kindIs "map" $default) (ne $name "resources") -}}
{{- include "coder-k8s.fill" (dict "values" $value "defaults" $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "coder-k8s.name" -}}
{{- $name := printf "%s-%s" .Release.Name .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- $name = .Release.Name -}}
{{- end -}}
{{- if regexMatch "^[0-9]" $name -}}
{{- fail (printf "%s starts with a digit, which is invalid for the name of a Service; set fullnameOverride or choose another release name" $name) -}}
{{- end -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "coder-k8s.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "coder-k8s.labels" -}}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- if hasKey $.Values.labels . -}}
{{- fail (printf "labels: %s is set by the chart" .) -}}
{{- end -}}
{{- end -}}
{{ include "coder-k8s.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "coder-k8s.metadata" -}}
name: {{ include "coder-k8s.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "coder-k8s.labels" . | nindent 2 }}
{{- end -}}

{{- define "coder-k8s.image" -}}
{{- with .Values.image -}}
{{- if not .repository -}}
{{- fail "image.repository: set it to the image that you built, for example registry.example.com/coder-k8s; there is no public image" -}}
{{- end -}}
{{- if regexMatch "[:@][^/]*$" .repository -}}
{{- fail (printf "image.repository: %s has a tag or a digest; set image.tag or image.digest instead" .repository) -}}
{{- end -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* An object of a file, with the labels of this release and the given annotations. */ -}}
{{- define "coder-k8s.object" -}}
{{- $object := fromYaml .text -}}
{{- $labels := merge (include "coder-k8s.labels" .root | fromYaml) ($object.metadata.labels | default dict) -}}
{{- $_ := set $object.metadata "labels" $labels -}}
{{- with .annotations -}}
{{- $_ := set $object.metadata "annotations" . -}}
{{- end -}}
{{ toYaml $object }}
{{- end -}}

{{- /* The variables of `extraEnv`. Duplicate names fail, because the API server rejects them. */ -}}
{{- define "coder-k8s.env" -}}
{{- $seen := dict "POD_NAMESPACE" "set by the chart" -}}
{{- range .Values.extraEnv -}}
{{- if hasKey $seen .name -}}
{{- fail (printf "extraEnv: %s is %s" .name (get $seen .name)) -}}
{{- end -}}
{{- $_ := set $seen .name "listed twice" -}}
{{- end -}}
{{- with .Values.extraEnv -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{- define "coder-k8s.subject" -}}
kind: ServiceAccount
name: {{ include "coder-k8s.name" . }}
namespace: {{ .Release.Namespace }}
{{- end -}}

{{- /* The affinity for `antiAffinity`; fields of `affinity` take precedence. */ -}}
{{- define "coder-k8s.affinity" -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "coder-k8s.selector" . | fromYaml)) -}}
{{- $rule := dict -}}
{{- if eq .Values.antiAffinity "preferred" -}}
{{- $rule = dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term)) -}}
{{- else if eq .Values.antiAffinity "required" -}}
{{- $rule = dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term) -}}
{{- end -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- if and $rule (not (hasKey $affinity "podAntiAffinity")) -}}
{{- $_ := set $affinity "podAntiAffinity" $rule -}}
{{- end -}}
{{- with $affinity -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}
