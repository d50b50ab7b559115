package main

import "testing"

func TestSecretsCommands(t *testing.T) {
	t.Parallel()
	exchanges(t, map[string]string{
		"GET /v1/secret": `{"lane":null,"use":"rsa","id":"1","label":"sn","secret":"PRIVATE","public":"PUBLIC","hosts":["*"]}`,
		"POST /v1/secret/rotate": `{"use":"text","id":"2","label":null,"secret":"hunter2-hunter2","public":null,"hosts":["a.example"],
 "rotated_at":"2026-11-21T00:00:00.000Z","previous_signs_until":"2099-01-01T00:00:00.000Z"}`,
		"POST /v1/secret/reencrypt": `{"key_id":"1a2b3c4d","done":1200,"failed":0,"left":0,"next":null}`,
	},
		exchange{line: "secrets get rsa", call: "GET /v1/secret?use=rsa", says: []string{"PUBLIC\n"}},
		exchange{line: "secrets get rsa --private", call: "GET /v1/secret?use=rsa", says: []string{"PRIVATE\n"}},
		exchange{
			line: "secrets rotate text --secret hunter2-hunter2 --hosts a.example,b.example:8443 --overlap 0s --reason r",
			call: "POST /v1/secret/rotate",
			body: `{"hosts":["a.example","b.example:8443"],"overlap":"0s","reason":"r","secret":"hunter2-hunter2","use":"text"}`,
			says: []string{"hunter2-hunter2\n"}, warns: []string{"signs beside it until 2099"},
		},
		exchange{
			line: "secrets reencrypt --reason yearly", call: "POST /v1/secret/reencrypt", body: `{"reason":"yearly"}`,
			says: []string{"1200 rows were re-encrypted with master key 1a2b3c4d, 0 are left"},
		},
		exchange{line: "secrets reencrypt --json", call: "POST /v1/secret/reencrypt", body: `{}`, says: []string{`"done": 1200`, `"left": 0`}})
}

// Rows that no master key opens make the command fail, whatever else it did.
func TestSecretsReencryptFailsForWhatItCannotRead(t *testing.T) {
	t.Parallel()
	exchanges(t, map[string]string{
		"POST /v1/secret/reencrypt": `{"key_id":"1a2b3c4d","done":0,"failed":2,"left":2,"next":null}`,
	}, exchange{
		line: "secrets reencrypt", call: "POST /v1/secret/reencrypt", body: `{}`, code: exitFailed,
		says: []string{"2 are left"}, warns: []string{"2 rows could not be decrypted"},
	})
}
