{{- define "headrace.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "headrace.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "headrace.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "headrace.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- define "headrace.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* The names that people and programs of the cluster ask the Service by, and those of the values. */ -}}
{{- define "headrace.publicHosts" -}}
{{- $name := include "headrace.name" . -}}
{{- $inside := printf "%s.%s" $name .Release.Namespace -}}
{{- $own := list $name $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside) -}}
{{- join "," (concat $own .Values.publicHosts) -}}
{{- end }}

{{- /* "true" where the executors are pods. */ -}}
{{- define "headrace.onKubernetes" -}}
{{- if hasPrefix "k8s://" .Values.spark.master }}true{{ end -}}
{{- end }}

{{- /* "true" where the executors run elsewhere, and have to reach the driver. */ -}}
{{- define "headrace.onCluster" -}}
{{- if not (hasPrefix "local" .Values.spark.master) }}true{{ end -}}
{{- end }}

{{- /* Settings of Spark that follow from the chart, under those of the values. */ -}}
{{- define "headrace.sparkConf" -}}
{{- $conf := dict -}}
{{- if include "headrace.onCluster" . -}}
{{- $_ := set $conf "spark.driver.host" "$(POD_IP)" -}}
{{- $_ := set $conf "spark.driver.bindAddress" "0.0.0.0" -}}
{{- $_ := set $conf "spark.driver.port" (.Values.spark.driverPort | toString) -}}
{{- $_ := set $conf "spark.driver.blockManager.port" (.Values.spark.blockManagerPort | toString) -}}
{{- end -}}
{{- if include "headrace.onKubernetes" . -}}
{{- $_ := set $conf "spark.kubernetes.namespace" .Release.Namespace -}}
{{- $_ := set $conf "spark.kubernetes.container.image" (include "headrace.image" .) -}}
{{- $_ := set $conf "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy -}}
{{- $_ := set $conf "spark.kubernetes.driver.pod.name" "$(POD_NAME)" -}}
{{- $_ := set $conf "spark.kubernetes.executor.podTemplateFile" "/deployment/executor.yaml" -}}
{{- with .Values.imagePullSecrets -}}
{{- $names := list -}}
{{- range . }}{{ $names = append $names .name }}{{ end -}}
{{- $_ := set $conf "spark.kubernetes.container.image.pullSecrets" (join "," $names) -}}
{{- end -}}
{{- range .Values.secretFiles -}}
{{- $_ := set $conf (printf "spark.kubernetes.executor.secrets.%s" .secret) .path -}}
{{- end -}}
{{- end -}}
{{- toJson (merge (deepCopy .Values.spark.conf) $conf) -}}
{{- end }}
