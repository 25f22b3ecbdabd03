{{- define "coder-k8s.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "coder-k8s.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "coder-k8s.labels" -}}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- if hasKey $.Values.labels . -}}
{{- fail (printf "labels: %s is set by the chart itself" .) -}}
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
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* An object of a file, with the labels of this release and further annotations. */ -}}
{{- define "coder-k8s.object" -}}
{{- $object := fromYaml .text -}}
{{- $labels := merge (include "coder-k8s.labels" .root | fromYaml) ($object.metadata.labels | default dict) -}}
{{- $_ := set $object.metadata "labels" $labels -}}
{{- with .annotations -}}
{{- $_ := set $object.metadata "annotations" . -}}
{{- end -}}
{{ toYaml $object }}
{{- end -}}

{{- define "coder-k8s.subject" -}}
kind: ServiceAccount
name: {{ include "coder-k8s.name" . }}
namespace: {{ .Release.Namespace }}
{{- end -}}

{{- /* What `antiAffinity` asks for, with the parts that `affinity` names in its stead. */ -}}
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
