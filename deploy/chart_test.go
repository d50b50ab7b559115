package deploy

import (
	"bytes"
	"os"
	"testing"
)

// TestTheChartHasTheSameFiles checks the copies of the chart, which cannot read files outside of its
// directory. The rendered rules in deploy/kubernetes are compared by make test-full.
func TestTheChartHasTheSameFiles(t *testing.T) {
	for copied, source := range map[string]string{
		"alerts.yaml": "prometheus/alerts.yaml", "recording.yaml": "prometheus/recording.yaml",
		"dispatcher.json": "grafana/dispatcher.json",
	} {
		want, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("helm/dispatcher/files/" + copied)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("helm/dispatcher/files/%s is no copy of %s (%v): run go test ./chart -update in "+
				"deploy/check", copied, source, err)
		}
	}
}
