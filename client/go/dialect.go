package counterweight

import (
	"encoding/json"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

// mostDepth is far above what any system nests; only a block that contains itself reaches it.
const mostDepth = 100

// A DialectOption is what Dialect takes beside the block.
type DialectOption func(*pb.Dialect)

// Release names the system's release to reproduce, such as "0.9.1".
// ServerInfo.DialectReleases has those that changed answers. Without it: the newest that
// the server knows; Result.Warnings name the differences of an older one.
func Release(version string) DialectOption {
	return func(dialect *pb.Dialect) { dialect.Release = version }
}

// IgnoreUnknownFields ignores keys that the system does not know, and lists them in
// Result.Warnings. Without it such a key is an InvalidRequestError that names it and the
// nearest known one.
func IgnoreUnknownFields() DialectOption {
	return func(dialect *pb.Dialect) { dialect.IgnoreUnknownFields = true }
}

// Dialect is another system's own configuration: "verl", "trl", "skyrl", "openrlhf", "slime",
// "miles", "nemo_rl", "ms_swift", "prime_rl", "areal", "roll", "tinker", and others of
// ServerInfo.Dialects. The block holds maps with string keys, slices, strings, numbers, booleans and
// nil; nil is the system's defaults. The server checks its content; a value of another Go type is an
// InvalidRequestError of Correct.
//
//	counterweight.Dialect("verl", map[string]any{"rollout_is": "token", "rollout_is_threshold": 2.0})
func Dialect(system string, block map[string]any, options ...DialectOption) Method {
	dialect := &pb.Dialect{System: system, Block: &structpb.Struct{}}
	for _, option := range options {
		option(dialect)
	}
	method := dialectMethod{wire: &pb.Method{Method: &pb.Method_Dialect{Dialect: dialect}}}
	converted := method.convert("method.dialect.block", reflect.ValueOf(block), 0)
	if fields := converted.GetStructValue(); fields != nil {
		dialect.Block = fields
	}
	return method
}

// DialectYAML is Dialect with the block in that system's own YAML (JSON is YAML too). The error
// names the line that is not YAML, or a value that is no mapping.
func DialectYAML(system string, block []byte, options ...DialectOption) (Method, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(block, &fields); err != nil {
		return nil, fmt.Errorf("counterweight: the block of %s: %w", system, err)
	}
	return Dialect(system, fields, options...), nil
}

type dialectMethod struct {
	wire       *pb.Method
	violations []Violation
}

func (d dialectMethod) message() (*pb.Method, []Violation) { return d.wire, d.violations }

// convert is the wire's form of a value; what has none becomes a violation.
func (d *dialectMethod) convert(path string, value reflect.Value, depth int) *structpb.Value {
	if !value.IsValid() {
		return structpb.NewNullValue()
	}
	if depth > mostDepth {
		d.violations = append(d.violations, Violation{path[:min(len(path), 128)], "is nested too deep"})
		return structpb.NewNullValue()
	}
	if number, ok := value.Interface().(json.Number); ok {
		if float, err := number.Float64(); err == nil {
			return structpb.NewNumberValue(float)
		}
	}
	switch value.Kind() {
	case reflect.Interface, reflect.Pointer:
		return d.convert(path, value.Elem(), depth+1)
	case reflect.Bool:
		return structpb.NewBoolValue(value.Bool())
	case reflect.String:
		return structpb.NewStringValue(value.String())
	case reflect.Float32, reflect.Float64:
		return structpb.NewNumberValue(value.Float())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return structpb.NewNumberValue(float64(value.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return structpb.NewNumberValue(float64(value.Uint()))
	case reflect.Slice, reflect.Array:
		list := &structpb.ListValue{}
		for i := range value.Len() {
			item := d.convert(fmt.Sprintf("%s[%d]", path, i), value.Index(i), depth+1)
			list.Values = append(list.Values, item)
		}
		return structpb.NewListValue(list)
	case reflect.Map:
		return d.convertMap(path, value, depth)
	}
	d.violations = append(d.violations, Violation{path, fmt.Sprintf("a block cannot hold a %s", value.Type())})
	return structpb.NewNullValue()
}

func (d *dialectMethod) convertMap(path string, value reflect.Value, depth int) *structpb.Value {
	block := &structpb.Struct{Fields: make(map[string]*structpb.Value, value.Len())}
	for _, key := range value.MapKeys() {
		name := key
		if name.Kind() == reflect.Interface {
			name = name.Elem()
		}
		if name.Kind() != reflect.String {
			d.violations = append(d.violations, Violation{path, fmt.Sprintf("keys must be strings, not %v", key)})
			continue
		}
		block.Fields[name.String()] = d.convert(path+"."+name.String(), value.MapIndex(key), depth+1)
	}
	return structpb.NewStructValue(block)
}
