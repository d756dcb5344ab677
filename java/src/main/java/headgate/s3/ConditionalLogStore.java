package headgate.s3;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Writes the commits of Delta tables on an object store: a commit is created only if it is absent.
 *
 * <p>Delta's own log store for s3a looks whether a version exists and then writes it, so that a commit which another
 * writer made in between is lost. Here the store itself decides (If-None-Match), and the loser gets the error by which
 * Delta tries again on the next version.
 */
public final class ConditionalLogStore extends HadoopFileSystemLogStore {
  private static final String ONLY_IF_ABSENT = "fs.option.create.conditional.overwrite";
  private static final int PRECONDITION_FAILED = 412;
  private static final int CONFLICT = 409;

  public ConditionalLogStore(Configuration configuration) {
    super(configuration);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
      throws IOException {
    byte[] content = bytesOf(actions);
    FileSystem files = path.getFileSystem(configuration);
    if (overwrite) {
      writeWhole(files.create(path, true), content);
      return;
    }
    FSDataOutputStreamBuilder<?, ?> creation = files.createFile(path);
    creation.must(ONLY_IF_ABSENT, true);
    try {
      writeWhole(creation.build(), content);
    } catch (org.apache.hadoop.fs.FileAlreadyExistsException exists) {
      throw alreadyThere(path, exists);
    } catch (IOException failure) {
      if (isRefusal(failure)) {
        throw alreadyThere(path, failure);
      }
      throw failure;
    }
  }

  /** Closing makes the object: a stream that failed, such as on a full disk, is left, or it made half a commit. */
  private static void writeWhole(FSDataOutputStream out, byte[] content) throws IOException {
    out.write(content);
    out.close();
  }

  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
    return false;
  }

  private static byte[] bytesOf(Iterator<String> actions) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try {
      while (actions.hasNext()) {
        bytes.write(actions.next().getBytes(StandardCharsets.UTF_8));
        bytes.write('\n');
      }
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
    return bytes.toByteArray();
  }

  private static FileAlreadyExistsException alreadyThere(Path path, IOException cause) {
    FileAlreadyExistsException exists = new FileAlreadyExistsException(path.toString());
    exists.initCause(cause);
    return exists;
  }

  /** Whether the store said that the object exists, or is just being created by another. */
  private static boolean isRefusal(Throwable failure) {
    for (Throwable one = failure; one != null; one = one.getCause()) {
      int status = statusOf(one);
      if (status == PRECONDITION_FAILED || status == CONFLICT) {
        return true;
      }
    }
    return false;
  }

  /** The HTTP status of the SDK's exceptions, whose class is not on the class path that this is compiled against. */
  private static int statusOf(Throwable failure) {
    try {
      return (int) failure.getClass().getMethod("statusCode").invoke(failure);
    } catch (ReflectiveOperationException | ClassCastException none) {
      return 0;
    }
  }
}
