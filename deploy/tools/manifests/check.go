// Package manifests reads Kubernetes objects strictly, and judges their pods as the admission controller does.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	yamldocuments "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// Read decodes the documents of a stream into the types of the API. A field or kind that the API does not have, and a
// field that occurs twice, is an error.
func Read(documents []byte) ([]runtime.Object, error) {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), monitoring.AddToScheme(known)); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	reader := yamldocuments.NewYAMLReader(bufio.NewReader(bytes.NewReader(documents)))
	var objects []runtime.Object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil || content == nil {
			continue // a comment alone, or text that the strict decoder reports below
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, firstLines(document))
		}
		objects = append(objects, object)
	}
}

// Restricted returns the reasons why the pods of an object break the pod security standard "restricted".
func Restricted(object runtime.Object) (string, error) {
	template := Template(object)
	if template == nil {
		return "", nil
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return "", err
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &template.ObjectMeta, &template.Spec))
	if result.Allowed {
		return "", nil
	}
	return result.ForbiddenDetail(), nil
}

// Template returns the template of an object's pods, nil for objects without pods.
func Template(object runtime.Object) *corev1.PodTemplateSpec {
	switch workload := object.(type) {
	case *appsv1.Deployment:
		return &workload.Spec.Template
	case *appsv1.StatefulSet:
		return &workload.Spec.Template
	case *batchv1.Job:
		return &workload.Spec.Template
	case *corev1.Pod:
		return &corev1.PodTemplateSpec{ObjectMeta: workload.ObjectMeta, Spec: workload.Spec}
	}
	return nil
}

func firstLines(document []byte) string {
	return strings.Join(strings.SplitN(string(document), "\n", 9)[:min(8, bytes.Count(document, []byte("\n")))], "\n")
}
