package manifests

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// templates renders the chart as "helm template" does, by the names of its templates.
func templates(values, namespace string) (map[string]string, error) {
	loaded, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = kubernetes
	release := chartutil.ReleaseOptions{Name: "counterweight", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, given, release, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(loaded, all)
	rendered := map[string]string{}
	for name, text := range files {
		if text = strings.TrimSpace(text); text != "" && !strings.HasSuffix(name, "NOTES.txt") {
			rendered[filepath.Base(name)] = strings.TrimPrefix(text, "---\n") + "\n"
		}
	}
	return rendered, err
}

// together makes one stream of renderings, in the order of the templates' names.
func together(rendered map[string]string) string {
	var documents []string
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		documents = append(documents, rendered[name])
	}
	return strings.Join(documents, "---\n")
}

func helm(values string) (string, error) {
	rendered, err := templates(values, "counterweight")
	return together(rendered), err
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

func same(t *testing.T, fromHelm, fromKustomize string) {
	t.Helper()
	one, other := objects(t, fromHelm), objects(t, fromKustomize)
	delete(other, "Namespace/counterweight") // a release does not own its namespace
	if ours, theirs := slices.Sorted(maps.Keys(one)), slices.Sorted(maps.Keys(other)); !slices.Equal(ours, theirs) {
		t.Fatalf("helm has %v, kustomize %v", ours, theirs)
	}
	for key := range one {
		left, _ := yaml.Marshal(one[key])
		right, _ := yaml.Marshal(other[key])
		if string(left) != string(right) {
			t.Errorf("%s differs:\n--- helm\n%s\n--- kustomize\n%s", key, left, right)
		}
	}
}
