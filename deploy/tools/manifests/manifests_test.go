package manifests

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const namespaced = "namespace: counterweight\n"

// Helm reports that it follows the chart's link to Prometheus' rules, once for each rendering.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

func TestHelmAndKustomizeRenderTheSame(t *testing.T) {
	base := namespaced + "resources: [../../base]\n"
	trainer, err := os.ReadFile(deploy + "/kubernetes/examples/sidecar/trainer.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var job map[string]any
	if err := yaml.Unmarshal(trainer, &job); err != nil {
		t.Fatal(err)
	}
	workloads, err := json.Marshal([]any{job})
	if err != nil {
		t.Fatal(err)
	}
	sidecar := fmt.Sprintf("shared: {enabled: false}\nsidecar: {workloads: %s", workloads)
	for name, shape := range map[string]struct{ values, kustomization string }{
		"shared": {"{}", base},
		"shared with all": {
			"shared: {autoscaling: {enabled: true}, monitoring: {enabled: true}}",
			namespaced + "resources: [../shared]\n",
		},
		"shared with encrypted metrics": {
			"shared: {autoscaling: {enabled: true}, monitoring: {enabled: true}, metrics: {tls: true}}",
			namespaced + "resources: [../shared]\ncomponents: [../../components/metrics-tls]\n",
		},
		"shared on GPUs": {"shared: {gpus: 1}", base + "components: [../../components/gpu]\n"},
		"sidecar":        {sidecar + "}", "resources: [../sidecar]\n"},
		"sidecar on GPUs": {
			sidecar + ", gpus: 1}",
			"resources: [../sidecar]\ncomponents: [../../components/sidecar-gpu]\n",
		},
	} {
		t.Run(name, func(t *testing.T) { same(t, mustHelm(t, shape.values), kustomize(t, shape.kustomization)) })
	}
}

func everything(t *testing.T) map[string]runtime.Object {
	t.Helper()
	rendered := kustomize(t, "resources: [../shared, ../sidecar]\n")
	return objects(t, rendered)
}

func TestPodsAreRestricted(t *testing.T) {
	pods := 0
	for key, object := range everything(t) {
		reasons, err := Restricted(object)
		if err != nil || reasons != "" {
			t.Errorf("%s: %s %v", key, reasons, err)
		}
		if Template(object) != nil {
			pods++
		}
	}
	if pods != 2 {
		t.Errorf("saw %d workloads with pods, not the deployment and the trainer", pods)
	}
}

func TestReadRefusesWhatTheAPIDoesNotHave(t *testing.T) {
	for reason, document := range map[string]string{
		`unknown field "spec.clusterip"`: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterip: None}\n",
		`already set`:                    "apiVersion: v1\nkind: Service\nmetadata: {name: a, name: b}\n",
		`no kind "Sevice"`:               "apiVersion: v1\nkind: Sevice\nmetadata: {name: a}\n",
	} {
		if _, err := Read([]byte(document)); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("want %q, got %v", reason, err)
		}
	}
}

func TestSelectorsFindTheServersPods(t *testing.T) {
	all := everything(t)
	deployment := all["Deployment/counterweight"].(*appsv1.Deployment)
	pod := labels.Set(deployment.Spec.Template.Labels)
	service := all["Service/counterweight"].(*corev1.Service)
	found := map[string]map[string]string{
		"deployment": deployment.Spec.Selector.MatchLabels,
		"service":    service.Spec.Selector,
		"budget":     all["PodDisruptionBudget/counterweight"].(*policyv1.PodDisruptionBudget).Spec.Selector.MatchLabels,
		"policy":     all["NetworkPolicy/counterweight"].(*networkingv1.NetworkPolicy).Spec.PodSelector.MatchLabels,
		"monitor":    all["PodMonitor/counterweight"].(*monitoring.PodMonitor).Spec.Selector.MatchLabels,
	}
	for i, spread := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
		found[fmt.Sprint("spread ", i)] = spread.LabelSelector.MatchLabels
	}
	for name, selector := range found {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(pod) {
			t.Errorf("the selector of the %s, %v, does not find the pods, %v", name, selector, pod)
		}
	}
	scaled := all["HorizontalPodAutoscaler/counterweight"].(*autoscalingv2.HorizontalPodAutoscaler).Spec.ScaleTargetRef
	if scaled.Name != deployment.Name || scaled.Kind != "Deployment" || deployment.Spec.Replicas != nil {
		t.Errorf("the autoscaler does not own the deployment's replicas: %v, %v", scaled, deployment.Spec.Replicas)
	}
}

// The server's process has ended --drain_delay + --drain_timeout + 2 s after SIGTERM.
func TestPodsHaveTimeToDrain(t *testing.T) {
	deployment := everything(t)["Deployment/counterweight"].(*appsv1.Deployment)
	const delay, timeout = 5, 30
	spec := deployment.Spec.Template.Spec
	if !strings.Contains(strings.Join(spec.Containers[0].Args, " "), fmt.Sprintf("--drain_delay=%d", delay)) {
		t.Error("another --drain_delay than this test's")
	}
	if *spec.TerminationGracePeriodSeconds < delay+timeout+2 {
		t.Errorf("%d s are too few", *spec.TerminationGracePeriodSeconds)
	}
}

func TestEncryptedMetricsNeedNoConsent(t *testing.T) {
	for values, encrypted := range map[string]bool{"{}": false, "shared: {metrics: {tls: true}}": true} {
		deployment := objects(t, mustHelm(t, values))["Deployment/counterweight"].(*appsv1.Deployment)
		server := deployment.Spec.Template.Spec.Containers[0]
		if insecure := strings.Contains(strings.Join(server.Args, " "), "--allow_insecure"); insecure == encrypted {
			t.Errorf("%s: %v", values, server.Args)
		}
		for _, probe := range []*corev1.Probe{server.StartupProbe, server.ReadinessProbe, server.LivenessProbe} {
			if https := probe.HTTPGet.Scheme == corev1.URISchemeHTTPS; https != encrypted {
				t.Errorf("%s: the probe of %s speaks %q", values, probe.HTTPGet.Path, probe.HTTPGet.Scheme)
			}
		}
	}
}

func TestServiceAddsNoVariables(t *testing.T) {
	for key, object := range objects(t, mustHelm(t, "{}")) {
		if template := Template(object); template != nil && (template.Spec.EnableServiceLinks == nil || *template.Spec.EnableServiceLinks) {
			t.Errorf("%s has service links, whose variables begin with COUNTERWEIGHT_", key)
		}
	}
}

func TestRulesAreThoseOfPrometheus(t *testing.T) {
	text, err := os.ReadFile(deploy + "/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	rule := everything(t)["PrometheusRule/counterweight"].(*monitoring.PrometheusRule)
	if len(want.Groups) < 2 || !reflect.DeepEqual(rule.Spec, want) {
		t.Error("the rules differ from deploy/prometheus/rules.yml; run make manifests")
	}
}

func TestSidecarOutlivesItsTrainer(t *testing.T) {
	spec := everything(t)["Job/trainer"].(*batchv1.Job).Spec.Template.Spec
	server, trainer := spec.InitContainers[0], spec.Containers[0]
	if server.RestartPolicy == nil || *server.RestartPolicy != corev1.ContainerRestartPolicyAlways || server.StartupProbe == nil {
		t.Error("the server is no native sidecar whose start the trainer waits for")
	}
	if server.VolumeMounts[0] != trainer.VolumeMounts[0] {
		t.Errorf("server and trainer mount %v and %v", server.VolumeMounts, trainer.VolumeMounts)
	}
	if want := "unix:" + server.VolumeMounts[0].MountPath + "/server.sock"; trainer.Env[0].Value != want {
		t.Errorf("the trainer's %s is %s", trainer.Env[0].Name, trainer.Env[0].Value)
	}
}

// TestInjectionReachesPodsOfOtherKinds is about kinds with types that are not compiled in here.
func TestInjectionReachesPodsOfOtherKinds(t *testing.T) {
	pod := `{spec: {volumes: [{name: data}], securityContext: {fsGroup: 7}, containers: [{name: log}, {name: trainer, env: [{name: A, value: b}]}]}}`
	values := fmt.Sprintf(`
shared: {enabled: false}
sidecar:
  workloads:
    - {apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}, spec: {pytorchReplicaSpecs: {Master: {template: %[1]s}, Worker: {replicas: 3, template: %[1]s}}}}
    - {apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: b}, spec: {headGroupSpec: {template: {spec: {containers: [{name: head}]}}}, workerGroupSpecs: [{groupName: c, template: %[1]s}]}}
`, pod)
	rendered := mustHelm(t, values)
	if got := strings.Count(rendered, "restartPolicy: Always"); got != 3 {
		t.Errorf("%d pods have a sidecar, not those of master, worker and Ray's workers:\n%s", got, rendered)
	}
	for _, kept := range []string{"fsGroup: 7", "name: data", "value: b", "name: log"} {
		if strings.Count(rendered, kept) != 3 {
			t.Errorf("%q of the pods did not survive", kept)
		}
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for values, reason := range map[string]string{
		"shared: {replica: 3}":                          "replica",
		"shared: {replicas: -1}":                        "/shared/replicas",
		"shared: {resources: {limits: {memory: null}}}": "/shared/resources",
		"shared: {flags: {tls_key: x}}":                 "tls_key",
		"shared: {flags: {metrics_tls: true}}":          "metrics_tls",
		"shared: {flags: {thread: 3}}":                  "thread",
		"sidecar: {flags: {threads: abc}}":              "/sidecar/flags/threads",
		"shared: {enabled: false}":                      "nothing to install",
		"shared: {metrics: {tls: 1}}":                   "/shared/metrics/tls",
		"shared: {tls: {secret: Big}}":                  "/shared/tls/secret",
		"image: {tag: 'a b'}":                           "/image/tag",
		"sidecar: {workloads: [{kind: Pod}]}":           "/sidecar/workloads/0",
		"sidecar: {workloads: [{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main}]}}]}": `Pod p has no container named "trainer"`,
	} {
		if _, err := helm(values); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: want %q in the error, got %v", values, reason, err)
		}
	}
}

func TestASidecarsMetricsCanBeOfItsPodAlone(t *testing.T) {
	values := `
shared: {enabled: false}
sidecar:
  metrics: {podNetwork: %s}
  workloads: [{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: trainer}]}}]
`
	for setting, want := range map[string][3]bool{"true": {true, true, false}, "false": {false, false, true}} {
		rendered := mustHelm(t, fmt.Sprintf(values, setting))
		for i, part := range []string{"--allow_insecure", "containerPort: 9464", "--metrics_listen=127.0.0.1:9464"} {
			if strings.Contains(rendered, part) != want[i] {
				t.Errorf("podNetwork %s: %q is there: %t", setting, part, !want[i])
			}
		}
	}
}

func TestFlagsKeepTheirNumbers(t *testing.T) {
	values := `shared: {flags: {max_bytes_in_flight: 123456789012345, max_queue_seconds: 0.5, devices: [0, 1], log_level: warning}}`
	rendered := mustHelm(t, values)
	for _, flag := range []string{"--max_bytes_in_flight=123456789012345", "--max_queue_seconds=0.5", "--devices=0,1", "--log_level=warning", "--drain_delay=5"} {
		if !strings.Contains(rendered, "- "+flag+"\n") {
			t.Errorf("%s is not among the arguments", flag)
		}
	}
}

func TestLintFindsNothing(t *testing.T) {
	for _, found := range lint.AllWithKubeVersion(chart, nil, "counterweight", &kubernetes).Messages {
		if found.Severity > support.InfoSev {
			t.Error(found)
		}
	}
}

// TestTheServerTakesTheArguments starts the server itself; .ci/run has built it.
func TestTheServerTakesTheArguments(t *testing.T) {
	server := os.Getenv("COUNTERWEIGHT_SERVER")
	if server == "" {
		server = deploy + "/../build/release/counterweight-server"
	}
	if _, err := os.Stat(server); err != nil && os.Getenv("CI") == "" {
		t.Skip("needs the server: ", err)
	}
	asked := 0
	for key, object := range everything(t) {
		template := Template(object)
		if template == nil {
			continue
		}
		for _, container := range append(template.Spec.InitContainers, template.Spec.Containers...) {
			if container.Name != "counterweight" {
				continue
			}
			asked++
			t.Setenv("COUNTERWEIGHT_THREADS", "4")
			program := exec.Command(server, append([]string{"--check_config"}, container.Args...)...)
			if output, err := program.CombinedOutput(); err != nil {
				t.Errorf("%s: %v %s", key, err, output)
			}
		}
	}
	if asked != 2 {
		t.Errorf("saw %d servers", asked)
	}
}
