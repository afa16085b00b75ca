package counterweight_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	cw "github.com/counterweight/counterweight/client/go"
)

const goldenFolder = "../../tests/golden"

// goldenCounts are how many files there are of each system at least: none is left out.
var goldenCounts = map[string]int{
	"areal": 138, "miles": 156, "ms_swift": 135, "nemo_rl": 148, "openrlhf": 108, "prime_rl": 73, "roll": 111,
	"skyrl": 181, "slime": 167, "tinker": 108, "trl": 175, "verl": 326, "dated/openrlhf": 111, "dated/trl": 88, "dated/verl": 68,
}

// oldReleases are those that equal the files without one; a system without releases has none.
var oldReleases = map[string]string{"openrlhf": "0.11.0", "skyrl": "0.4.0", "trl": "1.9.0", "verl": "0.9.0"}

// A number may be written as "NaN", "Infinity" or "-Infinity".
type number float64

func (n *number) UnmarshalJSON(text []byte) error {
	value, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*n = number(value)
	return err
}

type rows [][]number

// A golden is one request to another system and that system's answer.
type golden struct {
	Dialect string         `json:"dialect"`
	Release string         `json:"release"`
	Params  map[string]any `json:"params"`
	Inputs  struct {
		Rollout    rows `json:"rollout_log_probs"`
		Old        rows `json:"old_log_probs"`
		Current    rows `json:"current_log_probs"`
		Ref        rows `json:"ref_log_probs"`
		Advantages rows `json:"advantages"`
		Mask       rows `json:"response_mask"`
	} `json:"inputs"`
	Expect struct {
		Mask    rows              `json:"mask"`
		Weights rows              `json:"weights"`
		Loss    *number           `json:"loss"`
		Grad    rows              `json:"grad"`
		Metrics map[string]number `json:"metrics"`
		Error   json.RawMessage   `json:"error"`
	} `json:"expect"`

	name string
	// blamed are the fields that an error is about.
	blamed []string
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func readGoldens(t *testing.T) []*golden {
	t.Helper()
	var blamed map[string][]string
	var refused map[string]struct {
		Blamed []string `json:"blamed"`
	}
	readJSON(t, filepath.Join(goldenFolder, "blamed_fields.json"), &blamed)
	readJSON(t, filepath.Join(goldenFolder, "refused.json"), &refused)
	var goldens []*golden
	for folder, count := range goldenCounts {
		paths, err := filepath.Glob(filepath.Join(goldenFolder, folder, "*.json"))
		if err != nil || len(paths) < count {
			t.Fatalf("%s has %d files, less than %d", folder, len(paths), count)
		}
		for _, path := range paths {
			read := &golden{name: strings.TrimPrefix(folder, "dated/") + "/" + strings.TrimSuffix(filepath.Base(path), ".json")}
			readJSON(t, path, read)
			if refusal, ok := refused[read.name]; ok {
				read.blamed = refusal.Blamed
			} else if read.Expect.Error != nil {
				if read.blamed = blamed[read.name]; read.blamed == nil {
					t.Fatalf("%s blames no field", read.name)
				}
			}
			goldens = append(goldens, read)
		}
	}
	return goldens
}

func float32s(rows rows) []float32 {
	if rows == nil {
		return nil
	}
	numbers := []float32{}
	for _, row := range rows {
		for _, value := range row {
			numbers = append(numbers, float32(value))
		}
	}
	return numbers
}

func uint8s(rows rows) []uint8 {
	numbers := []uint8{}
	for _, row := range rows {
		for _, value := range row {
			numbers = append(numbers, uint8(value))
		}
	}
	return numbers
}

// question is the file's request.
func (g *golden) question() (*cw.Batch, cw.Method, cw.Option) {
	batch := &cw.Batch{
		ResponseMask:    uint8s(g.Inputs.Mask),
		RolloutLogProbs: float32s(g.Inputs.Rollout),
		OldLogProbs:     float32s(g.Inputs.Old),
		CurrentLogProbs: float32s(g.Inputs.Current),
		RefLogProbs:     float32s(g.Inputs.Ref),
		Advantages:      float32s(g.Inputs.Advantages),
	}
	if batch.Shape[0] = len(g.Inputs.Mask); batch.Shape[0] > 0 {
		batch.Shape[1] = len(g.Inputs.Mask[0])
	}
	release := g.Release
	if release == "" {
		release = oldReleases[g.Dialect]
	}
	release = release[strings.LastIndex(release, "=")+1:]
	outputs := []cw.Output{cw.OutputKeepMask}
	if g.Expect.Weights != nil {
		outputs = append(outputs, cw.OutputWeights)
	}
	asksForLoss := g.Expect.Loss != nil
	if g.blamed != nil {
		asksForLoss = g.Inputs.Current != nil || g.Inputs.Advantages != nil
	}
	if asksForLoss {
		outputs = append(outputs, cw.OutputGradient)
	}
	return batch, cw.Dialect(g.Dialect, g.Params, cw.Release(release)), cw.Outputs(outputs...)
}

func near(actual, expected, relative, absolute float64) bool {
	if math.IsNaN(expected) || math.IsInf(expected, 0) {
		return actual == expected || (math.IsNaN(actual) && math.IsNaN(expected))
	}
	return math.Abs(actual-expected) <= absolute+relative*math.Abs(expected)
}

// difference is how an answer differs from the file's, by the rules of tests/golden/README.md.
func (g *golden) difference(batch *cw.Batch, result *cw.Result) error {
	expect := &g.Expect
	if expect.Mask != nil && !bytes.Equal(result.KeepMask, uint8s(expect.Mask)) {
		return fmt.Errorf("the keep mask is %v instead of %v", result.KeepMask, expect.Mask)
	}
	compare := func(what string, actual []float32, expected rows, relative, absolute float64) error {
		position := 0
		for _, row := range expected {
			for _, want := range row {
				if batch.ResponseMask[position] == 0 {
					want, relative, absolute := 0.0, 0.0, 0.0
					if !near(float64(actual[position]), want, relative, absolute) {
						return fmt.Errorf("%s at %d is %v, where the mask is 0", what, position, actual[position])
					}
				} else if !near(float64(actual[position]), float64(want), relative, absolute) {
					return fmt.Errorf("%s at %d is %v instead of %v", what, position, actual[position], want)
				}
				position++
			}
		}
		return nil
	}
	if err := compare("a weight", result.Weights, expect.Weights, 1e-5, 1e-8); err != nil {
		return err
	}
	if expect.Loss != nil && (!result.HasLoss || !near(result.Loss, float64(*expect.Loss), 2e-5, 1e-7)) {
		return fmt.Errorf("the loss is %v instead of %v", result.Loss, *expect.Loss)
	}
	largest := 0.0
	for _, row := range expect.Grad {
		for _, value := range row {
			largest = math.Max(largest, math.Abs(float64(value)))
		}
	}
	if err := compare("the gradient", result.Gradient, expect.Grad, 2e-5, 1e-6*largest); err != nil {
		return err
	}
	for name, want := range expect.Metrics {
		value, ok := result.Metrics[name]
		if !ok || !near(value, float64(want), 2e-5, 2e-6) {
			return fmt.Errorf("metric %s is %v instead of %v", name, value, want)
		}
	}
	return nil
}
