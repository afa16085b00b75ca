// Package drift reads the drift of training runs off a server's page for Prometheus.
package drift

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/counterweight/counterweight/client/go/internal/targets"
)

const prefix = "counterweight_drift_"

// mostBytes is far above the page of a server with the most runs.
const mostBytes = 64 << 20

// client takes no proxy to this machine, whatever the spelling.
var client = &http.Client{Transport: withoutProxyHere()}

func withoutProxyHere() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = func(request *http.Request) (*url.URL, error) {
		if targets.IsThisMachine(request.URL.Hostname()) {
			return nil, nil
		}
		return http.ProxyFromEnvironment(request)
	}
	return transport
}

// A Run is the drift of one run: gauges of its last batch and counters since the server
// began, under their names without "counterweight_drift_". server/METRICS.md lists them.
type Run map[string]float64

// Batches is how many the server has corrected in this run.
func (r Run) Batches() float64 { return r["batches_total"] }

// EffectiveSampleSize is that of the last batch as a share of its tokens, in (0, 1]; 1 is
// on-policy. False: the method has no weights.
func (r Run) EffectiveSampleSize() (float64, bool) {
	share, ok := r["effective_sample_size_ratio"]
	return share, ok
}

// Read returns all runs of the page at the address; batches without a run are
// under the empty name.
func Read(ctx context.Context, address string) (map[string]Run, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("the address of the metrics: %w", err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the metrics: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the metrics: %s answers %s", address, answer.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(answer.Body, mostBytes))
	if err != nil {
		return nil, fmt.Errorf("the metrics of %s: %w", address, err)
	}
	runs := map[string]Run{}
	for name, family := range families {
		if short, ours := strings.CutPrefix(name, prefix); ours {
			collect(runs, short, family)
		}
	}
	return runs, nil
}

// collect takes the values that are labelled by run alone: rules have a second label.
func collect(runs map[string]Run, name string, family *dto.MetricFamily) {
	for _, metric := range family.GetMetric() {
		if len(metric.GetLabel()) != 1 || metric.GetLabel()[0].GetName() != "run" {
			continue
		}
		run := metric.GetLabel()[0].GetValue()
		if runs[run] == nil {
			runs[run] = Run{}
		}
		switch family.GetType() {
		case dto.MetricType_GAUGE:
			runs[run][name] = metric.GetGauge().GetValue()
		case dto.MetricType_COUNTER:
			runs[run][name] = metric.GetCounter().GetValue()
		case dto.MetricType_UNTYPED:
			runs[run][name] = metric.GetUntyped().GetValue()
		}
	}
}

// Names are those of all runs, sorted.
func Names(runs map[string]Run) []string {
	names := make([]string, 0, len(runs))
	for name := range runs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
