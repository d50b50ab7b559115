package image

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/deploy/check/program"
)

// TestReleaseImage checks that Dockerfile.release, which takes binaries that are built already, describes the
// image of the Dockerfile. goreleaser adds the labels.
func TestReleaseImage(t *testing.T) {
	text, err := os.ReadFile(program.Root + "Dockerfile.release")
	if err != nil {
		t.Fatal(err)
	}
	if wrong := lint(t, text); len(wrong) > 0 {
		t.Errorf("Dockerfile.release:\n%s", strings.Join(wrong, "\n"))
	}
	want, got := configuration(t, nil), configurationOf(t, text, nil)
	for name := range want.Labels {
		if !strings.Contains(string(goreleaser(t)), name+":") {
			t.Errorf(".goreleaser.yaml: no label %s", name)
		}
	}
	want.Labels, got.Labels = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Dockerfile.release: %+v\nDockerfile: %+v", got, want)
	}
}

func goreleaser(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(program.Root + ".goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}
