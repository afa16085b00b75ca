package manifests

import (
	"flag"
	"os"
	"regexp"
	"testing"
)

const header = "# Written by `make manifests` from the chart deploy/helm/counterweight; do not edit.\n"

// Lines of an empty namespace, and spaces that templates leave at the ends of lines.
var absent = regexp.MustCompile(`(?m)^  namespace: \n| +$`)

var write = flag.Bool("write", false, "write kustomize's objects instead of comparing them")

// The trainer's workload, to which the chart adds the server: the result is kustomize's patch.
const (
	podPatch      = `{apiVersion: v1, kind: Pod, metadata: {name: any}, spec: {containers: [{name: trainer}]}}`
	workloadPatch = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: any}, spec: {template: {spec: {containers: [{name: trainer}]}}}}`
)

// The objects that kustomize reads are the chart's. They have no namespace, because a kustomization sets it.
func TestTheObjectsOfKustomizeAreTheCharts(t *testing.T) {
	sidecar := func(workload string) string {
		return "shared: {enabled: false}\nsidecar: {workloads: [" + workload + "]}"
	}
	for file, from := range map[string]struct{ values, template string }{
		"base/objects.yaml":                  {"{}", ""},
		"components/autoscaling/object.yaml": {"shared: {autoscaling: {enabled: true}}", "horizontalpodautoscaler.yaml"},
		"components/monitoring/objects.yaml": {"shared: {monitoring: {enabled: true}}", "monitoring.yaml"},
		"components/sidecar/pod.yaml":        {sidecar(podPatch), "sidecar.yaml"},
		"components/sidecar/workload.yaml":   {sidecar(workloadPatch), "sidecar.yaml"},
	} {
		rendered, err := templates(from.values, "")
		if err != nil {
			t.Fatal(err)
		}
		text := rendered[from.template]
		if from.template == "" {
			text = together(rendered)
		}
		text = header + absent.ReplaceAllString(text, "")
		path := deploy + "/kubernetes/" + file
		if *write {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if there, _ := os.ReadFile(path); string(there) != text {
			t.Errorf("%s is not what the chart gives; run make manifests and commit the result", file)
		}
	}
}
