package manifests

import (
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	chartapi "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
)

func files(chart *chartapi.Chart) map[string]string {
	found := map[string]string{}
	for _, file := range chart.Raw {
		found[file.Name] = string(file.Data)
	}
	return found
}

// A release's archive of the chart is for Helm what the folder is.
func TestTheArchiveIsTheChart(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "counterweight.tgz")
	if output, err := exec.Command("python3", deploy+"/release/archive.py", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	packed, err := loader.Load(archive)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	if err := packed.Validate(); err != nil {
		t.Error(err)
	}
	if len(packed.Raw) < 10 || !reflect.DeepEqual(files(packed), files(folder)) {
		t.Errorf("the archive has %d files, the folder %d, or other contents", len(packed.Raw), len(folder.Raw))
	}
}
