package counterweight_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

var words = regexp.MustCompile(`\w+`)

// bits make answers comparable that may have floating-point numbers of NaN.
func bits(result *cw.Result) any {
	floats := func(numbers []float32) (bits []uint32) {
		for _, number := range numbers {
			bits = append(bits, math.Float32bits(number))
		}
		return bits
	}
	metrics := map[string]uint64{}
	for name, value := range result.Metrics {
		metrics[name] = math.Float64bits(value)
	}
	return []any{
		floats(result.Weights), floats(result.Gradient), result.KeepMask, result.TokenReasons, result.SequenceReasons,
		math.Float64bits(result.Loss), result.HasLoss, metrics, result.Rules, result.NonFiniteTokens, result.Warnings,
	}
}

// blames reports whether a violation names a field that the file's error is about.
func (g *golden) blames(err error) error {
	var invalid *cw.InvalidRequestError
	if !errors.As(err, &invalid) {
		return fmt.Errorf("%w is no InvalidRequestError", err)
	}
	for _, violation := range invalid.Violations {
		for _, word := range words.FindAllString(strings.ToLower(violation.Field), -1) {
			if slices.Contains(g.blamed, word) {
				return nil
			}
		}
	}
	return fmt.Errorf("%v names none of %v", invalid.Violations, g.blamed)
}

func TestGoldensOverEveryTransport(t *testing.T) {
	tcp, unix := servertest.Start(t), servertest.StartUnix(t)
	type way struct {
		name   string
		client *cw.Client
	}
	var ways []way
	for _, transport := range []cw.Transport{cw.Unary, cw.Stream, cw.SharedMemory} {
		if transport != cw.SharedMemory {
			ways = append(ways, way{"tcp " + transport.String(), dial(t, tcp.Address, cw.WithTransport(transport))})
		}
		ways = append(ways, way{"unix " + transport.String(), dial(t, unix.Address, cw.WithTransport(transport))})
	}
	// Chunks that end inside of elements.
	ways = append(ways, way{"tcp stream, small chunks",
		dial(t, tcp.Address, cw.WithTransport(cw.Stream), cw.WithChunkBytes(7))})
	goldens := readGoldens(t)
	if len(goldens) < 2093 {
		t.Fatalf("there are %d files", len(goldens))
	}
	for turn, golden := range goldens {
		t.Run(golden.name, func(t *testing.T) {
			batch, method, outputs := golden.question()
			var first any
			for place, way := range ways {
				// All go the first way, and two of the others in turn.
				if place > 0 && (turn+place)%(len(ways)-1) > 1 {
					continue
				}
				result, err := way.client.Correct(background(t), batch, method, outputs)
				if golden.blamed != nil {
					if err := golden.blames(err); err != nil {
						t.Errorf("%s: %v", way.name, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", way.name, err)
				}
				if err := golden.difference(batch, result); err != nil {
					t.Errorf("%s: %v", way.name, err)
				}
				if first == nil {
					first = bits(result)
				} else if answer := bits(result); !reflect.DeepEqual(answer, first) {
					t.Errorf("%s: %v is not %v, which %s answered", way.name, answer, first, ways[0].name)
				}
			}
		})
	}
}
