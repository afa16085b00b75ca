package manifests

import (
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	deploy = "../.."
	chart  = deploy + "/helm/counterweight"
)

var kubernetes = chartutil.KubeVersion{Version: "v1.35.0", Major: "1", Minor: "35"}

// helm renders the chart as "helm template" does, NOTES.txt left out.
func helm(values string) (string, error) {
	loaded, err := loader.Load(chart)
	if err != nil {
		return "", err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return "", err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = kubernetes
	release := chartutil.ReleaseOptions{Name: "counterweight", Namespace: "counterweight", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, given, release, capabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(loaded, all)
	if err != nil {
		return "", err
	}
	var rendered strings.Builder
	for name, text := range files {
		if !strings.HasSuffix(name, "NOTES.txt") {
			rendered.WriteString("\n---\n" + text)
		}
	}
	return rendered.String(), nil
}

func mustHelm(t *testing.T, values string) string {
	t.Helper()
	rendered, err := helm(values)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

// kustomize builds a folder's manifests, or those of the text of a kustomization beside the base.
func kustomize(t *testing.T, kustomization string) string {
	t.Helper()
	folder, err := os.MkdirTemp(deploy+"/kubernetes/examples", ".test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(rendered)
}

// objects decodes strictly, and keys by kind and name.
func objects(t *testing.T, rendered string) map[string]runtime.Object {
	t.Helper()
	list, err := Read([]byte(rendered))
	if err != nil {
		t.Fatal(err)
	}
	keyed := map[string]runtime.Object{}
	for _, object := range list {
		name, err := meta.NewAccessor().Name(object)
		if err != nil {
			t.Fatal(err)
		}
		key := object.GetObjectKind().GroupVersionKind().Kind + "/" + name
		if keyed[key] != nil {
			t.Errorf("%s occurs twice", key)
		}
		keyed[key] = object
	}
	return keyed
}

func keys(objects map[string]runtime.Object) []string {
	var found []string
	for key := range objects {
		found = append(found, key)
	}
	sort.Strings(found)
	return found
}

func same(t *testing.T, fromHelm, fromKustomize string) {
	t.Helper()
	one, other := objects(t, fromHelm), objects(t, fromKustomize)
	delete(other, "Namespace/counterweight") // a release does not own its namespace
	if !reflect.DeepEqual(keys(one), keys(other)) {
		t.Fatalf("helm has %v, kustomize %v", keys(one), keys(other))
	}
	for key := range one {
		left, _ := yaml.Marshal(one[key])
		right, _ := yaml.Marshal(other[key])
		if string(left) != string(right) {
			t.Errorf("%s differs:\n--- helm\n%s\n--- kustomize\n%s", key, left, right)
		}
	}
}
