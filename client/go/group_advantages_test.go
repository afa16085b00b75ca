package counterweight_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"reflect"
	"testing"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

func TestGroupAdvantagesOfSurvivors(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	rows := cw.Rows{
		Rewards: []float32{100, 1, 1, 3}, GroupIDs: []int64{5, 5, -1, -1}, KeptTokens: []int64{0, 1, 1, 1},
	}
	got, err := client.GroupAdvantages(background(t), rows, &cw.GroupBaseline{Estimator: cw.GroupEstimatorRLOO})
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{0, 0, -2, 2}; !reflect.DeepEqual(got.Advantages, want) {
		t.Errorf("got %v, want %v", got.Advantages, want)
	}
	if want := []float32{0, 0, 3, 1}; !reflect.DeepEqual(got.Baselines, want) {
		t.Errorf("got %v, want %v", got.Baselines, want)
	}
	if got.Metrics["lonely_groups"] != 1 || got.Metrics["reward_bias"] != 100-5.0/3 || len(got.Warnings) != 0 {
		t.Errorf("got %v %q", got.Metrics, got.Warnings)
	}
}

func TestGroupAdvantagesNameWhatIsWrong(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	rows := cw.Rows{Rewards: []float32{1}, GroupIDs: []int64{1, 2}}
	for _, baseline := range []*cw.GroupBaseline{nil, {System: "verl.gpro"}} {
		_, err := client.GroupAdvantages(background(t), rows, baseline)
		var invalid *cw.InvalidRequestError
		if !errors.As(err, &invalid) || len(invalid.Violations) != 2 {
			t.Errorf("got %v", err)
		}
	}
}

func TestGroupAdvantagesOfVerl(t *testing.T) {
	type golden struct {
		Function   string
		Rewards    []any
		Ids        []int64 `json:"group_ids"`
		Tokens     []int64
		Kept       []int64 `json:"kept_tokens"`
		Advantages []*float64
		Exact      []*float64 `json:"advantages_float64"` // where float32 has lost them
	}
	text, err := os.ReadFile("../../tests/golden/groups/verl.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []golden }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	client := dial(t, servertest.Start(t).Address)
	count := 0
	for _, each := range file.Cases {
		if each.Function != "compute_rloo_outcome_advantage" {
			continue
		}
		rows := cw.Rows{GroupIDs: each.Ids, Tokens: each.Tokens, KeptTokens: each.Kept}
		for _, reward := range each.Rewards {
			number, isNumber := reward.(float64)
			if !isNumber {
				break
			}
			rows.Rewards = append(rows.Rewards, float32(number))
		}
		if len(rows.Rewards) < len(each.Rewards) {
			continue // a NaN, which makes verl's whole group NaN
		}
		got, err := client.GroupAdvantages(background(t), rows, &cw.GroupBaseline{System: "verl.rloo"})
		if err != nil {
			t.Fatal(err)
		}
		wants := each.Advantages
		if each.Exact != nil {
			wants = each.Exact
		}
		for i, want := range wants {
			if want != nil && each.Kept[i] > 0 && math.Abs(float64(got.Advantages[i])-*want) > 1e-5*(1+math.Abs(*want)) {
				t.Errorf("row %d of %v: got %v, want %v", i, each.Rewards, got.Advantages[i], *want)
			}
		}
		count++
	}
	if count < 20 {
		t.Errorf("only %d cases", count)
	}
}
