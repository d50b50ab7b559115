package outbound

import (
	"strings"
	"testing"
)

func TestCheckMethod(t *testing.T) {
	t.Parallel()
	for method, ok := range map[string]bool{
		"GET": true, "POST": true, "PUT": true, "PATCH": true, "DELETE": true, "HEAD": true, "PURGE": true,
		"": false, "G ET": false, "GET\r\n": false, "CONNECT": false, "TRACE": false, strings.Repeat("A", 33): false,
	} {
		if err := CheckMethod(method); (err == nil) != ok {
			t.Errorf("CheckMethod(%q) = %v", method, err)
		}
	}
}
