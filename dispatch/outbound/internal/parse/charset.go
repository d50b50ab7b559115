package parse

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/simplifiedchinese"
)

// byteOrderMark is what some programs put before UTF-8.
const byteOrderMark = "\xef\xbb\xbf"

// UTF8 returns a body as UTF-8 and without byte order mark. UTF-8 and the Chinese national encodings are
// known (GB18030, which contains GBK and GB2312), as the content type declares them or, where it is silent,
// an XML declaration. Bytes of any other encoding stay as they are: most of what rules look for is ASCII. It
// says no if the bytes are not what they are declared to be; the text is then good for showing only.
func UTF8(contentType string, body []byte) (text []byte, ok bool) {
	if rest, marked := bytes.CutPrefix(body, []byte(byteOrderMark)); marked {
		return rest, true
	}
	if IsASCII(body) {
		return body, true
	}
	name := charsetParameter(contentType)
	if name == "" {
		name = DeclaredEncoding(body)
	}
	switch strings.ToLower(name) {
	case "gbk", "gb2312", "gb18030", "cp936", "x-gbk":
	default:
		return body, true
	}
	text, err := simplifiedchinese.GB18030.NewDecoder().Bytes(body)
	switch {
	case err == nil && !bytes.ContainsRune(text, utf8.RuneError):
		return text, true
	case utf8.Valid(body):
		return body, true // it declares what it is not, but what it is is clear
	case err != nil:
		return body, false
	}
	return text, false
}

func IsASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// charsetParameter returns the charset of a content type, or "". It is more tolerant than package mime:
// receivers are not careful.
func charsetParameter(contentType string) string {
	for part := range strings.SplitSeq(contentType, ";") {
		name, value, ok := strings.Cut(part, "=")
		if ok && strings.EqualFold(strings.TrimSpace(name), "charset") {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}

// maxXMLDeclaration is within how many bytes an XML declaration has to end.
const maxXMLDeclaration = 200

// declaredEncoding returns the encoding that an XML declaration names, or "".
func DeclaredEncoding(body []byte) string {
	if !bytes.HasPrefix(body, []byte("<?xml")) {
		return ""
	}
	declaration, _, ok := bytes.Cut(body[:min(len(body), maxXMLDeclaration)], []byte("?>"))
	if !ok {
		return ""
	}
	_, after, ok := strings.Cut(string(declaration), "encoding")
	if !ok {
		return ""
	}
	after, ok = strings.CutPrefix(strings.TrimSpace(after), "=")
	if !ok {
		return ""
	}
	name := strings.TrimSpace(after)
	if name == "" || name[0] != '"' && name[0] != '\'' {
		return ""
	}
	name, _, _ = strings.Cut(name[1:], name[:1])
	return name
}
