package chart

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	root     = "../../../"
	chartDir = root + "deploy/helm/dispatcher"
)

// A rendered is what the chart makes of some values.
type rendered struct {
	files map[string]string // text of each document, by the base name of its template
	notes string

	deployment *apps.Deployment
	service    *core.Service
	account    *core.ServiceAccount
	claim      *core.PersistentVolumeClaim
	dashboard  *core.ConfigMap
	budget     *policy.PodDisruptionBudget
	ingress    *networking.Ingress
	network    *networking.NetworkPolicy
	monitor    *monitoring.PodMonitor
	rules      *monitoring.PrometheusRule
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A release is what the command line of helm names. The service is what manages the objects.
type release struct{ name, namespace, service string }

// template does what `helm template RELEASE deploy/helm/dispatcher` does. The values are YAML.
func template(c *chart.Chart, rel release, values string) (*rendered, error) {
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.27.0", Major: "1", Minor: "27"}
	if !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, capabilities.KubeVersion.Version) {
		return nil, fmt.Errorf("the chart wants Kubernetes %s", c.Metadata.KubeVersion)
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{
		Name: rel.name, Namespace: rel.namespace, Revision: 1, IsInstall: true,
	}, capabilities)
	if err != nil {
		return nil, err
	}
	all["Release"].(map[string]any)["Service"] = rel.service
	texts, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	r := &rendered{files: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		switch base := path.Base(name); {
		case base == "NOTES.txt":
			r.notes = text
		case path.Ext(name) == ".tpl" || strings.TrimSpace(text) == "":
		default:
			r.files[base] = strings.TrimLeft(text, "\n")
			if err := r.add(text); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, text)
			}
		}
	}
	return r, nil
}

// decoder refuses fields that do not exist and fields that occur twice.
func decoder() (runtime.Decoder, error) {
	types := runtime.NewScheme()
	if err := scheme.AddToScheme(types); err != nil {
		return nil, err
	}
	if err := monitoring.AddToScheme(types); err != nil {
		return nil, err
	}
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, types, types,
		json.SerializerOptions{Yaml: true, Strict: true}), nil
}

// add decodes a document. Each kind occurs at most once.
func (r *rendered) add(text string) error {
	d, err := decoder()
	if err != nil {
		return err
	}
	object, _, err := d.Decode([]byte(text), nil, nil)
	if err != nil {
		return err
	}
	switch o := object.(type) {
	case *apps.Deployment:
		return keep(&r.deployment, o)
	case *core.Service:
		return keep(&r.service, o)
	case *core.ServiceAccount:
		return keep(&r.account, o)
	case *core.PersistentVolumeClaim:
		return keep(&r.claim, o)
	case *core.ConfigMap:
		return keep(&r.dashboard, o)
	case *policy.PodDisruptionBudget:
		return keep(&r.budget, o)
	case *networking.Ingress:
		return keep(&r.ingress, o)
	case *networking.NetworkPolicy:
		return keep(&r.network, o)
	case *monitoring.PodMonitor:
		return keep(&r.monitor, o)
	case *monitoring.PrometheusRule:
		return keep(&r.rules, o)
	}
	return fmt.Errorf("no rule of this test knows the kind %T", object)
}

func keep[T any](place **T, o *T) error {
	if *place != nil {
		return fmt.Errorf("two documents are a %T", o)
	}
	*place = o
	return nil
}
