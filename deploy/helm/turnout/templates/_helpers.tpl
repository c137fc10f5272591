{{- define "turnout.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "turnout.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "turnout.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "turnout.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that never change, of one component: (list . "server"). */}}
{{- define "turnout.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "turnout.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "turnout.labels" -}}
{{- $root := index . 0 -}}
{{ include "turnout.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "turnout.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "turnout.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "turnout.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "turnout.routes" -}}
{{ .Values.existingRoutes | default (printf "%s-routes" (include "turnout.fullname" .)) }}
{{- end -}}

{{/* What both pods have of the parts that belong to a pod: its names, security and place. */}}
{{- define "turnout.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $labels := include "turnout.labels" (list $root $component) | fromYaml -}}
{{- /* The labels that the objects of the chart look for win. */ -}}
{{- toYaml (merge $labels (index $root.Values $component).podLabels) -}}
{{- end -}}

{{- define "turnout.podPlace" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Who listens beyond its machine has TLS and tokens (or clients' certificates), or says that it wants neither. */}}
{{- define "turnout.guarded" -}}
{{- $part := index . 0 -}}
{{- $name := index . 1 -}}
{{- /* A text is true, also "false": protection is not switched off by one. */ -}}
{{- if not (kindIs "bool" $part.insecure) -}}
{{- fail (printf "%s.insecure: expected true or false, found the text %q" $name (toString $part.insecure)) -}}
{{- end -}}
{{- if not $part.insecure -}}
{{- if not $part.tls.existingSecret -}}
{{- fail (printf "%s is reached by other machines: name a certificate in %s.tls.existingSecret, or set %s.insecure" $name $name $name) -}}
{{- end -}}
{{- if not (or $part.tokens.existingSecret $part.tls.clientAuthority) -}}
{{- fail (printf "%s is reached by other machines: name tokens in %s.tokens.existingSecret, set %s.tls.clientAuthority, or set %s.insecure" $name $name $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The secret that driver and executors share. */}}
{{- define "turnout.sparkSecret" -}}
{{ .Values.spark.authentication.existingSecret | default (printf "%s-spark" (include "turnout.fullname" .)) }}
{{- end -}}

{{/* Names by which the server is called: of its own settings, and of the ingress. None: any. */}}
{{- define "turnout.hosts" -}}
{{- $hosts := .Values.server.config.hosts | default list -}}
{{- if and .Values.server.ingress.enabled $hosts -}}{{- $hosts = concat $hosts .Values.server.ingress.hosts | uniq -}}{{- end -}}
{{- toJson $hosts -}}
{{- end -}}

{{/* turnout.yaml: what the chart knows, and server.config over it. */}}
{{- define "turnout.config" -}}
{{- $server := .Values.server -}}
{{- $properties := dict "spark.driver.memory" $server.driverMemory -}}
{{- $spark := dict -}}
{{- if .Values.spark.onKubernetes -}}
{{- $full := include "turnout.fullname" . -}}
{{- $_ := set $spark "master" "k8s://https://kubernetes.default.svc" -}}
{{- $properties = merge (dict
  "spark.submit.deployMode" "client"
  "spark.driver.host" (printf "%s-driver.%s.svc" $full .Release.Namespace)
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" 7078
  "spark.driver.blockManager.port" 7079
  "spark.executor.instances" (int .Values.spark.executors)
  "spark.executor.cores" (int .Values.spark.cores)
  "spark.executor.memory" .Values.spark.memory
  "spark.executor.memoryOverhead" .Values.spark.memoryOverhead
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.container.image" (include "turnout.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.executor.podTemplateFile" "/etc/turnout/executor.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
  "spark.kubernetes.executor.podNamePrefix" (printf "%s-executor" $full)
  "spark.authenticate" "true"
  "spark.authenticate.secret.file" "/etc/turnout/spark/secret"
  "spark.network.crypto.enabled" "true"
  "spark.network.crypto.authEngineVersion" "2"
  "spark.network.crypto.cipher" "AES/GCM/NoPadding"
) $properties -}}
{{- end -}}
{{- $_ := set $spark "properties" (merge (deepCopy .Values.spark.properties) $properties) -}}
{{- $config := dict
  "listen" "0.0.0.0:8090"
  "grpc" (dict "listen" "0.0.0.0:8080")
  "logFormat" "json"
  "spark" $spark
-}}
{{- if $server.ha.lease -}}
{{- $ha := dict "lease" $server.ha.lease "folder" "/var/lib/turnout-shared" "name" (include "turnout.fullname" .) "seconds" $server.ha.seconds -}}
{{- if $server.tls.existingSecret -}}{{- $_ := set $ha "ca" "/etc/turnout/tls/ca.crt" -}}{{- end -}}
{{- $_ := set $config "ha" $ha -}}
{{- else -}}
{{- $_ := set $config "state" "/var/lib/turnout/server" -}}
{{- $_ := set $config "checkpoints" "/var/lib/turnout/checkpoints" -}}
{{- end -}}
{{- if $server.insecure -}}{{- $_ := set $config "insecure" true -}}{{- end -}}
{{- if $server.tls.existingSecret -}}
{{- $tls := dict "cert" "/etc/turnout/tls/tls.crt" "key" "/etc/turnout/tls/tls.key" -}}
{{- if $server.tls.clientAuthority -}}{{- $_ := set $tls "clientCa" "/etc/turnout/tls/ca.crt" -}}{{- end -}}
{{- $_ := set $config "tls" $tls -}}
{{- end -}}
{{- if $server.tokens.existingSecret -}}
{{- $_ := set $config "tokens" (printf "/etc/turnout/tokens/%s" $server.tokens.key) -}}
{{- end -}}
{{- if $server.store.url -}}{{- $_ := set $config "store" $server.store.url -}}{{- end -}}
{{- $own := deepCopy $server.config -}}
{{- with include "turnout.hosts" . | fromJsonArray -}}{{- $_ := set $own "hosts" . -}}{{- end -}}
{{ toYaml (merge $own $config) }}
{{- end -}}
