import java.lang.reflect.AccessibleObject;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.List;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.transaction.annotation.AnnotationTransactionAttributeSource;
import org.springframework.transaction.interceptor.TransactionInterceptor;

/**
 * Calls the service of the document through Spring's transaction interceptor. In an application a proxy of the
 * service does that. Debian's Spring cannot make such a proxy with its own version of ASM.
 */
public class Main {
    public static void main(String[] orders) throws Throwable {
        DriverManagerDataSource source = new DriverManagerDataSource(System.getenv("JDBC_URL"));
        Payments payments = new Payments(new JdbcTemplate(source));
        Method paid = Payments.class.getMethod("paid", List.class);
        new TransactionInterceptor(
            new DataSourceTransactionManager(source), new AnnotationTransactionAttributeSource()
        ).invoke(new MethodInvocation() {
            public Method getMethod() { return paid; }
            public Object[] getArguments() { return new Object[] {List.of(orders)}; }
            public Object getThis() { return payments; }
            public AccessibleObject getStaticPart() { return paid; }
            public Object proceed() throws Throwable {
                try {
                    return paid.invoke(payments, getArguments());
                } catch (InvocationTargetException e) {
                    throw e.getCause();
                }
            }
        });
    }
}
