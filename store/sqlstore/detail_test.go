package sqlstore

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The headers of an attempt are read as they were, whether they are those that every request of ours has or not.
func TestHeadersAreReadAsTheyWere(t *testing.T) {
	a := store.Attempt{CallbackID: "01M8027H0TQ1NDWB76AGE2WGZF", Number: 3, StartedAt: 1_790_000_000_999}
	other := []store.Header{{Name: "x", Value: "\"<\n号"}}
	late := a
	late.StartedAt += 1000
	for _, headers := range [][]store.Header{
		nil, other, ownHeaders(&a, ownUnsigned), append(ownHeaders(&a, ownSigned), other[0]), ownHeaders(&late, ownSigned),
		ownHeaders(&a, ownSigned)[1:],
	} {
		a.RequestHeaders = headers
		text := must(detailOf(&a))
		var d attemptDetail
		noError(decode("detail", text, &d))
		got := a
		d.into(&got)
		if diff := cmp.Diff(headers, got.RequestHeaders); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
